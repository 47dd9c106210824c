/* SPDX-License-Identifier: MIT */
/*
 * The processes of the live scenarios: threads that execute what the controller asks, one request at a time. Requests
 * stand in a file that both map; threads look at it with system calls that no hook sees, so that nothing but what is
 * asked for happens in them.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cerrno>
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define TM extern "C" long
TM pub(long);
TM local_pub(long);
TM remote_pub(long);
TM tail_local_pub(long);
TM tail_remote_pub(long);
TM use_priv(long);
TM fact(long);
TM boom(long);
TM guarded(long);
TM through(long);
TM deep_catch(long);
TM mix(long);
TM run_t1(long);
TM run_c1(long);
TM bif(long);
TM tail_bif(long);
TM two(long, long);
TM outer(long);
TM on(long);
TM off(long);
TM mem_outer(long);

enum { SLOTS = 64, IDLE = 0, ASKED = 1, DONE = 2 };
struct slot {
	uint32_t state, used;
	uint32_t pid, tid;
	char name[32];
	int64_t a, b, result;
	char text[64];
};
struct board {
	uint32_t ready, stop;
	slot slots[SLOTS];
};
static board *shared;

static long inline_syscall(long number, long a, long b)
{
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b) : "rcx", "r11", "memory");
	return result;
}

static void moment()
{
	const timespec time = {0, 500000};
	inline_syscall(SYS_nanosleep, (long)&time, 0);
}

extern "C" void *serve(void *);
static __thread slot *mine;

static slot *free_slot()
{
	for (slot &one : shared->slots)
		if (!__atomic_exchange_n(&one.used, 1, __ATOMIC_ACQ_REL))
			return &one;
	abort();
}

static pid_t child_tid;

extern "C" void *child(void *)
{
	__atomic_store_n(&child_tid, (pid_t)inline_syscall(SYS_gettid, 0, 0), __ATOMIC_RELEASE);
	return NULL;
}

/* Until the thread that spawn(child) has made is no more. */
static long child_is_over()
{
	char task[32];
	pid_t tid;
	while (!(tid = __atomic_load_n(&child_tid, __ATOMIC_ACQUIRE)))
		moment();
	snprintf(task, sizeof task, "/proc/self/task/%d", tid);
	while (inline_syscall(SYS_access, (long)task, 0) == 0)
		moment();
	return 0;
}

static long spawn(void *(*routine)(void *), slot *its)
{
	pthread_t thread;
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attributes, routine, its))
		return -1;
	while (its && !__atomic_load_n(&its->tid, __ATOMIC_ACQUIRE))
		moment();
	return its ? its - shared->slots : 0;
}

/* A child program that serves; linked: it ends when the thread that made it does. */
static long fork_one(int linked)
{
	slot *its = free_slot();
	pid_t pid = fork();
	if (pid == 0) {
		if (linked)
			prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(its);
		_exit(0);
	}
	while (!__atomic_load_n(&its->tid, __ATOMIC_ACQUIRE))
		moment();
	return its - shared->slots;
}

static long two_ends(int a, int b) { return (long)a << 32 | (uint32_t)b; }

extern "C" long run_caught(long a, const char *name);
static volatile sig_atomic_t handled;
static void on_signal(int) { handled++; }

/* The caller of what is executed. */
extern "C" __attribute__((noinline, noipa)) long run(long a, long b, const char *name)
{
	volatile long result = -1;
#define CALL(function) else if (!strcmp(name, #function)) result = function(a)
	if (!strcmp(name, "two"))
		result = two(a, b);
	CALL(pub);
	CALL(local_pub);
	CALL(remote_pub);
	CALL(tail_local_pub);
	CALL(tail_remote_pub);
	CALL(use_priv);
	CALL(fact);
	CALL(guarded);
	CALL(deep_catch);
	CALL(mix);
	CALL(run_t1);
	CALL(run_c1);
	CALL(bif);
	CALL(tail_bif);
	CALL(outer);
	CALL(on);
	CALL(off);
	CALL(mem_outer);
	return result;
}

/* Likewise, where what is executed may throw. */
extern "C" __attribute__((noinline, noipa)) long run_caught(long a, const char *name)
{
	volatile long result = -1;
	try {
		result = !strcmp(name, "boom") ? boom(a) : through(a);
	} catch (...) {
		result = -2;
	}
	return result;
}

/* Message queues, of System V (a is its number) and of POSIX (its descriptor). */
static long queue_operation(long a, const char *name, const char *text)
{
	struct {
		long type;
		char text[8];
	} message = {1, ""};
	mq_attr attributes = {};
	attributes.mq_maxmsg = 8;
	attributes.mq_msgsize = 8;
	if (!strcmp(name, "sysv"))
		return msgget(IPC_PRIVATE, 0600);
	if (!strcmp(name, "sysv_send"))
		return msgsnd((int)a, &message, 4, 0);
	if (!strcmp(name, "sysv_receive"))
		return msgrcv((int)a, &message, 8, 0, 0);
	if (!strcmp(name, "sysv_end"))
		return msgctl((int)a, IPC_RMID, NULL);
	if (!strcmp(name, "mq")) {
		int fd = mq_open(text, O_RDWR | O_CREAT, 0600, &attributes);
		mq_unlink(text);
		return fd;
	}
	if (!strcmp(name, "mq_send"))
		return mq_send((int)a, message.text, 4, 0);
	if (!strcmp(name, "mq_receive"))
		return mq_receive((int)a, message.text, 8, NULL);
	if (!strcmp(name, "mq_end"))
		return mq_close((int)a);
	return -3;
}

static long system_operation(long a, long b, const char *name, const char *text)
{
	int ends[2];
	char buffer[256] = {0};
	memcpy(buffer, text, strlen(text));
	if (!strcmp(name, "spawn"))
		return spawn(serve, free_slot());
	if (!strcmp(name, "spawn_child")) {
		__atomic_store_n(&child_tid, 0, __ATOMIC_RELEASE);
		return spawn(child, NULL) ? -1 : child_is_over();
	}
	if (!strcmp(name, "spawn_link"))
		return fork_one(1);
	if (!strcmp(name, "fork"))
		return fork_one(0);
	if (!strcmp(name, "link"))
		return prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!strcmp(name, "spawn_bad")) {
		pthread_t thread;
		pthread_attr_t attributes;
		pthread_attr_init(&attributes);
		pthread_attr_setstacksize(&attributes, (size_t)1 << 46);
		return pthread_create(&thread, &attributes, child, NULL) != 0;
	}
	if (!strcmp(name, "register"))
		return pthread_setname_np(pthread_self(), text);
	if (!strcmp(name, "pipe"))
		return pipe(ends) ? -1 : two_ends(ends[0], ends[1]);
	if (!strcmp(name, "datagrams"))
		return socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) ? -1 : two_ends(ends[0], ends[1]);
	if (!strcmp(name, "socketpair"))
		return socketpair(AF_UNIX, SOCK_STREAM, 0, ends) ? -1 : two_ends(ends[0], ends[1]);
	if (!strcmp(name, "write"))
		return write((int)a, buffer, strlen(text));
	if (!strcmp(name, "read"))
		return read((int)a, buffer, sizeof buffer);
	if (!strcmp(name, "take")) {
		ssize_t got = read((int)a, buffer, b < (long)sizeof buffer ? (size_t)b : sizeof buffer);
		return got; /* as many as asked for, at most */
	}
	if (!strcmp(name, "pour") || !strcmp(name, "drain")) { /* b bytes, in small pieces */
		for (long done = 0; done < b;) {
			size_t piece = (size_t)(1 + done % 5 < b - done ? 1 + done % 5 : b - done);
			ssize_t moved = name[0] == 'p' ? write((int)a, buffer, piece) : read((int)a, buffer, piece);
			if (moved <= 0)
				return -2;
			done += moved;
		}
		return b;
	}
	if (!strcmp(name, "nonblocking"))
		return fcntl((int)a, F_SETFL, O_NONBLOCK);
	if (!strcmp(name, "fill")) {
		static char much[1 << 17];
		return write((int)a, much, sizeof much) > 0;
	}
	if (!strcmp(name, "close"))
		return close((int)a);
	if (!strcmp(name, "yield"))
		return sched_yield();
	if (!strcmp(name, "poll"))
		return poll(NULL, 0, (int)a);
	if (!strcmp(name, "no_memory"))
		return malloc((size_t)1 << 62) == NULL;
	if (!strcmp(name, "grow")) {
		void *volatile block = malloc((size_t)a);
		memset(block, 1, (size_t)a);
		return block != NULL;
	}
	if (!strcmp(name, "spin")) {
		timespec begin, now;
		inline_syscall(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&begin);
		do
			inline_syscall(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now);
		while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < a);
		return 0;
	}
	if (!strcmp(name, "poll_read")) {
		pollfd wanted = {(int)a, POLLIN, 0};
		return poll(&wanted, 1, (int)b);
	}
	if (!strcmp(name, "exec")) {
		execl(text, text, (char *)NULL);
		return errno;
	}
	if (!strcmp(name, "bind")) {
		sockaddr_un address = {};
		address.sun_family = AF_UNIX;
		snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s", text);
		int fd = socket(AF_UNIX, SOCK_STREAM, 0);
		return bind(fd, (sockaddr *)&address, (socklen_t)(sizeof address.sun_family + 1 + strlen(text))) == 0 ? fd : -1;
	}
	if (!strcmp(name, "throw"))
		return run_caught(0, "boom");
	if (!strcmp(name, "trim"))
		return malloc_trim(0) >= 0;
	if (!strcmp(name, "handle"))
		return signal((int)a, on_signal) != SIG_ERR;
	if (!strcmp(name, "unblock")) {
		sigset_t one;
		sigemptyset(&one);
		sigaddset(&one, (int)a);
		return pthread_sigmask(SIG_UNBLOCK, &one, NULL);
	}
	if (!strcmp(name, "trap_exit")) /* a linked process that is told of the other's end, and lives on */
		return prctl(PR_SET_PDEATHSIG, (int)a);
	if (!strcmp(name, "tgkill"))
		return syscall(SYS_tgkill, getpid(), (int)a, (int)b);
	if (!strcmp(name, "open"))
		return dlopen(text, RTLD_NOW) != NULL;
	if (!strcmp(name, "shut")) {
		void *handle = dlopen(text, RTLD_NOW | RTLD_NOLOAD);
		return handle && dlclose(handle) == 0 && dlclose(handle) == 0;
	}
	if (!strcmp(name, "late")) {
		void *handle = dlopen(text, RTLD_NOW | RTLD_NOLOAD);
		long (*late)(long) = handle ? (long (*)(long))dlsym(handle, "late") : NULL;
		long result = late ? late(a) + 0 : -1;
		if (handle)
			dlclose(handle);
		return result;
	}
	if (!strcmp(name, "exit_program"))
		_exit((int)a);
	if (!strcmp(name, "reap"))
		return waitpid((pid_t)a, NULL, 0);
	return -1;
}

/* Many calls, as fast as they go. */
static long many(long count)
{
	volatile long sum = 0;
	for (long i = 0; i < count; i++)
		sum += pub(i);
	return sum;
}

static long execute(const slot *asked)
{
	if (!strcmp(asked->name, "many"))
		return many(asked->a);
	static const char *const caught[] = {"boom", "through"};
	for (const char *name : caught)
		if (!strcmp(asked->name, name))
			return run_caught(asked->a, name);
	long result = queue_operation(asked->a, asked->name, asked->text);
	if (result != -3)
		return result;
	result = system_operation(asked->a, asked->b, asked->name, asked->text);
	return result != -1 ? result : run(asked->a, asked->b, asked->name);
}

extern "C" void *serve(void *argument)
{
	mine = (slot *)argument;
	mine->pid = (uint32_t)inline_syscall(SYS_getpid, 0, 0);
	__atomic_store_n(&mine->tid, (uint32_t)inline_syscall(SYS_gettid, 0, 0), __ATOMIC_RELEASE);
	while (!__atomic_load_n(&shared->stop, __ATOMIC_ACQUIRE)) {
		if (__atomic_load_n(&mine->state, __ATOMIC_ACQUIRE) != ASKED) {
			moment();
			continue;
		}
		int ends = !strcmp(mine->name, "end");
		mine->result = ends ? 0 : execute(mine);
		__atomic_store_n(&mine->state, DONE, __ATOMIC_RELEASE);
		if (ends)
			return NULL;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int fd = open(argv[1], O_RDWR);
	shared = (board *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	int threads = argc > 2 ? atoi(argv[2]) : 4;
	/* Of ended children the thread is told that unblocks this. */
	sigset_t ended;
	sigemptyset(&ended);
	sigaddset(&ended, SIGCHLD);
	pthread_sigmask(SIG_BLOCK, &ended, NULL);
	for (int i = 0; i < threads; i++)
		spawn(serve, free_slot());
	__atomic_store_n(&shared->ready, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&shared->stop, __ATOMIC_ACQUIRE))
		moment();
	return 0;
}
