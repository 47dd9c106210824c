/* SPDX-License-Identifier: MIT */
/* Calls that are given addresses where nothing is: each fails as it would untraced, and nothing follows the address. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void *volatile nowhere = (void *)8;

/* One line a call: what it returns and errno. */
#define TRY(call) told(#call, (errno = 0, (long)(call)))

static void told(const char *call, long result)
{
	int error = errno;
	printf("%.*s %ld %s\n", (int)strcspn(call, "("), call, result, error ? strerrorname_np(error) : "-");
}

static void sockets(void)
{
	int pair[2], stream = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), udp = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	struct iovec piece = {nowhere, 5};
	struct msghdr message = {.msg_name = nowhere, .msg_namelen = 10, .msg_iov = nowhere, .msg_iovlen = 2, .msg_control = nowhere};
	struct mmsghdr two[2] = {{.msg_hdr = message}, {.msg_hdr = message}};

	socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair);
	TRY(send(pair[0], "hello", 5, 0));
	TRY(read(pair[1], nowhere, 5));
	TRY(send(pair[0], "hello", 5, 0));
	TRY(readv(pair[1], &piece, 1));
	TRY(writev(pair[0], nowhere, 2));
	TRY(sendmsg(pair[0], &message, 0));
	TRY(sendmsg(pair[0], nowhere, 0));
	TRY(recvmsg(pair[1], nowhere, 0));
	TRY(sendmmsg(pair[0], two, 2, 0));
	TRY(recvmmsg(pair[1], nowhere, 2, 0, NULL));
	TRY(recvmmsg(pair[1], two, 2, 0, nowhere));
	TRY(sendto(pair[0], "x", 1, 0, nowhere, 16));
	TRY(recvfrom(udp, nowhere, 8, 0, nowhere, nowhere));
	TRY(connect(stream, nowhere, 16));
	TRY(bind(stream, nowhere, 16));
	TRY(accept4(stream, nowhere, nowhere, 0));
	TRY(getsockname(udp, nowhere, nowhere));
	TRY(setsockopt(udp, SOL_SOCKET, SO_RCVTIMEO, nowhere, 16));
	TRY(getsockopt(udp, SOL_SOCKET, SO_ERROR, nowhere, nowhere));
	TRY(ioctl(udp, FIONBIO, nowhere));
	TRY(socketpair(AF_UNIX, SOCK_STREAM, 0, nowhere));
	TRY(pipe(nowhere));
}

static void queues(void)
{
	struct {
		long type;
		char text[8];
	} entry = {1, "text"};
	int queue = msgget(IPC_PRIVATE, 0600);
	TRY(msgsnd(queue, nowhere, 4, 0));
	TRY(msgrcv(queue, nowhere, 4, 0, IPC_NOWAIT));
	TRY(msgsnd(queue, &entry, 8, 0));
	TRY(msgrcv(queue, nowhere, 8, 0, 0));
	msgctl(queue, IPC_RMID, NULL);
	TRY(sendfile(1, 0, nowhere, 5));
}

static void waits(void)
{
	int events = epoll_create1(0);
	TRY(poll(nowhere, 1, 0));
	TRY(ppoll(nowhere, 1, NULL, nowhere));
	TRY(select(4, nowhere, nowhere, NULL, NULL));
	TRY(epoll_ctl(events, EPOLL_CTL_ADD, 0, nowhere));
	TRY(epoll_wait(events, nowhere, -1, 0));
	TRY(nanosleep(nowhere, NULL));
	TRY(sigtimedwait(nowhere, nowhere, nowhere));
	TRY(signalfd(-1, nowhere, 0));
	TRY(wait(nowhere));
	TRY(waitpid(-1, nowhere, 0));
	TRY(wait3(nowhere, WNOHANG, nowhere));
	TRY(waitid(P_ALL, 0, nowhere, WEXITED | WNOHANG));
	if (fork() == 0)
		_exit(3);
	TRY(wait(nowhere));
	TRY(wait(NULL));
}

static void rest(void)
{
	TRY(prctl(PR_SET_NAME, nowhere));
	TRY(syscall(SYS_write, 1, nowhere, 3));
	TRY(syscall(SYS_futex, nowhere, 0, 0, 0, 0, 0));
	TRY(syscall(SYS_execve, nowhere, nowhere, nowhere));
	TRY(syscall(SYS_clone3, nowhere, 64));
	TRY(syscall(SYS_pipe2, nowhere, 0));
	TRY(kill(getpid(), 99));
	TRY(sigqueue(getpid(), 0, (union sigval){.sival_ptr = nowhere}));
	TRY(mremap(nowhere, 5, 5, 0));
	TRY(munmap(nowhere, 5));
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	sockets();
	queues();
	waits();
	rest();
	return 0;
}
