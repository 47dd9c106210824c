/* SPDX-License-Identifier: MIT */
/* msgs [socketpair|pipe|mq|queue] [threads|processes|alone] [n]
 * n messages of 64 B from one side to the other. `queue` is an array under a
 * mutex, with an eventfd that counts the messages in it. One operation is one
 * message: one send and one receive. alone: both sides are one thread, which
 * takes each message out at once; nobody waits, so it is the least noisy.
 */
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum { MESSAGE_BYTES = 64, QUEUE_SLOTS = 1024 };

struct message {
	uint64_t number;
	char text[MESSAGE_BYTES - sizeof(uint64_t)];
};

/* In shared memory, so that it serves two processes as well. */
struct queue {
	pthread_mutex_t lock;
	uint64_t head, tail;
	struct message slot[QUEUE_SLOTS];
};

struct channel {
	const char *kind;
	uint64_t n;
	int out, in;       /* descriptors of the two ends */
	mqd_t mq;
	int filled, empty; /* eventfds that count the queue's slots */
	struct queue *queue;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int is(const struct channel *c, const char *kind)
{
	return strcmp(c->kind, kind) == 0;
}

static void channel_open(struct channel *c)
{
	int ends[2];

	if (is(c, "socketpair")) {
		if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0)
			die("socketpair");
		c->out = ends[0];
		c->in = ends[1];
	} else if (is(c, "pipe")) {
		if (pipe(ends) != 0)
			die("pipe");
		c->out = ends[1];
		c->in = ends[0];
	} else if (is(c, "mq")) {
		struct mq_attr attr = { .mq_maxmsg = 10, .mq_msgsize = MESSAGE_BYTES };
		char name[32];

		snprintf(name, sizeof(name), "/bench-msgs-%d", (int)getpid());
		c->mq = mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, &attr);
		if (c->mq == (mqd_t)-1)
			die("mq_open");
		mq_unlink(name);
	} else if (is(c, "queue")) {
		pthread_mutexattr_t attr;

		c->queue = mmap(NULL, sizeof(*c->queue), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (c->queue == MAP_FAILED)
			die("mmap");
		pthread_mutexattr_init(&attr);
		pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
		pthread_mutex_init(&c->queue->lock, &attr);
		c->filled = eventfd(0, EFD_SEMAPHORE);
		c->empty = eventfd(QUEUE_SLOTS, EFD_SEMAPHORE);
	} else {
		fprintf(stderr, "no such channel: %s\n", c->kind);
		exit(2);
	}
}

static void event_add(int fd)
{
	uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) != sizeof(one))
		die("eventfd write");
}

static void event_take(int fd)
{
	uint64_t one;

	if (read(fd, &one, sizeof(one)) != sizeof(one))
		die("eventfd read");
}

static void send_one(struct channel *c, const struct message *m)
{
	if (c->queue) {
		event_take(c->empty);
		pthread_mutex_lock(&c->queue->lock);
		c->queue->slot[c->queue->tail++ % QUEUE_SLOTS] = *m;
		pthread_mutex_unlock(&c->queue->lock);
		event_add(c->filled);
	} else if (is(c, "mq")) {
		if (mq_send(c->mq, (const char *)m, sizeof(*m), 0) != 0)
			die("mq_send");
	} else if (is(c, "socketpair")) {
		if (send(c->out, m, sizeof(*m), 0) != sizeof(*m))
			die("send");
	} else if (write(c->out, m, sizeof(*m)) != sizeof(*m)) {
		die("write");
	}
}

static void receive_one(struct channel *c, struct message *m)
{
	if (c->queue) {
		event_take(c->filled);
		pthread_mutex_lock(&c->queue->lock);
		*m = c->queue->slot[c->queue->head++ % QUEUE_SLOTS];
		pthread_mutex_unlock(&c->queue->lock);
		event_add(c->empty);
	} else if (is(c, "mq")) {
		if (mq_receive(c->mq, (char *)m, sizeof(*m), NULL) != sizeof(*m))
			die("mq_receive");
	} else if (is(c, "socketpair")) {
		if (recv(c->in, m, sizeof(*m), 0) != sizeof(*m))
			die("recv");
	} else if (read(c->in, m, sizeof(*m)) != sizeof(*m)) {
		die("read");
	}
}

static void *send_all(void *arg)
{
	struct channel *c = arg;
	struct message m = { .text = "hello" };

	for (m.number = 0; m.number < c->n; m.number++)
		send_one(c, &m);
	return NULL;
}

static void receive_all(struct channel *c)
{
	struct message m;

	for (uint64_t i = 0; i < c->n; i++) {
		receive_one(c, &m);
		if (m.number != i) {
			fprintf(stderr, "message %" PRIu64 " came as %" PRIu64 "\n", m.number, i);
			exit(1);
		}
	}
}

static void send_and_receive(struct channel *c)
{
	struct message m = { .text = "hello" };

	for (uint64_t i = 0; i < c->n; i++) {
		m.number = i;
		send_one(c, &m);
		receive_one(c, &m);
	}
}

/* Of this process alone: what it was kept from running by others is not in it. */
static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int main(int argc, char **argv)
{
	struct channel c = { .kind = arg_word(argc, argv, 1, "socketpair") };
	const char *sides = arg_word(argc, argv, 2, "threads");
	uint64_t start, ns;

	c.n = arg_number(argc, argv, 3, 100000);
	channel_open(&c);
	start = now_ns();
	if (strcmp(sides, "alone") == 0) {
		send_and_receive(&c);
	} else if (strcmp(sides, "threads") == 0) {
		pthread_t sender;

		pthread_create(&sender, NULL, send_all, &c);
		receive_all(&c);
		pthread_join(sender, NULL);
	} else {
		pid_t child = fork();

		if (child == 0) {
			send_all(&c);
			_exit(0);
		}
		receive_all(&c);
		waitpid(child, NULL, 0);
	}
	ns = now_ns() - start;
	print_result("msgs", c.n, ns);
	printf("msgs_per_s=%.0f cpu_ns_per_msg=%.1f\n", (double)c.n * 1e9 / (double)ns, (double)cpu_ns() / (double)c.n);
	return 0;
}
