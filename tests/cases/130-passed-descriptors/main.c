/* SPDX-License-Identifier: MIT */
/* Descriptors sent over a socket, also where the receiver has no room for them; credentials; datagrams cut short. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int send_some(int over, const int *fds, int count)
{
	char byte = 'd', control[CMSG_SPACE(8 * sizeof(int))] = "";
	struct iovec data = {&byte, 1};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control,
				 .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
	memcpy(CMSG_DATA(head), fds, (size_t)count * sizeof(int));
	return sendmsg(over, &message, 0) == 1;
}

static int take_some(int over, int *fds, int room, int *cut)
{
	char byte, control[CMSG_SPACE(8 * sizeof(int))];
	struct iovec data = {&byte, 1};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control,
				 .msg_controllen = CMSG_SPACE((size_t)room * sizeof(int))};
	int count = 0;

	if (recvmsg(over, &message, 0) != 1)
		return -1;
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	if (head && head->cmsg_type == SCM_RIGHTS) {
		count = (int)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(head), (size_t)count * sizeof(int));
	}
	*cut = (message.msg_flags & MSG_CTRUNC) != 0;
	return count;
}

int main(void)
{
	int pair[2], ends[2], fds[8], got[8], cut, count, status;
	struct rlimit limit;

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) || pipe(ends))
		return 1;
	for (int i = 0; i < 8; i++)
		fds[i] = ends[i % 2];
	send_some(pair[0], fds, 4);
	count = take_some(pair[1], got, 4, &cut);
	printf("four: %d, cut %d, first %d", count, cut, got[0]);
	char text[8] = "";
	int through = write(got[1], "hi", 2) == 2 && read(got[0], text, 2) == 2;
	printf(", through them %d %s\n", through, text);
	for (int i = 0; i < count; i++)
		close(got[i]);
	send_some(pair[0], fds, 4);
	count = take_some(pair[1], got, 1, &cut);
	printf("no room in the buffer: some %d, cut %d\n", count > 0 && count < 4, cut);
	for (int i = 0; i < count; i++)
		close(got[i]);
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = (rlim_t)got[0] + 1;
	send_some(pair[0], fds, 4);
	setrlimit(RLIMIT_NOFILE, &limit);
	count = take_some(pair[1], got, 4, &cut);
	printf("no room in the table: %d, cut %d\n", count, cut);
	close(got[0]);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	char cut_short[2];
	printf("datagram %zd", send(pair[0], "12345", 5, 0));
	printf(" %zd\n", recv(pair[1], cut_short, sizeof(cut_short), MSG_TRUNC));
	if (fork() == 0) {
		close(pair[1]);
		send_some(pair[0], &ends[1], 1);
		_exit(0);
	}
	wait(&status);
	count = take_some(pair[1], got, 4, &cut);
	printf("from a child that has ended: %d, works %d\n", count, write(got[0], "x", 1) == 1 && read(ends[0], text, 8) == 1);
	return 0;
}
