/* SPDX-License-Identifier: MIT */
/* A filter that refuses with an errno of its own whatever is not on its list: what a tracer calls for itself would be told. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

int main(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(__NR_read), ALLOW(__NR_write), ALLOW(__NR_exit_group), ALLOW(__NR_clone), ALLOW(__NR_wait4),
		ALLOW(__NR_newfstatat), ALLOW(__NR_set_robust_list), ALLOW(__NR_rseq),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EXDEV),
	};
	struct sock_fprog program = {sizeof(rules) / sizeof(*rules), rules};
	int wrong = 0, status = -1;
	char text[100];

	free(malloc(64)); /* the heap is there before */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return 77;
	for (int i = 0; i < 1000; i++) {
		char byte = 0;
		errno = ENOANO;
		if (!getenv("PATH") || errno != ENOANO)
			wrong++;
		if (read(0, &byte, 1) != 0 || errno != ENOANO)
			wrong++;
		free(malloc(64));
		if (errno != ENOANO)
			wrong++;
	}
	pid_t pid = fork();
	if (pid == 0)
		_exit(errno == ENOANO ? 4 : 5);
	waitpid(pid, &status, 0);
	int ends[2], refused = pipe(ends) == -1 && errno == EXDEV;
	int length = snprintf(text, sizeof(text), "wrong %d, child exit %d, pipe %s\n", wrong, WEXITSTATUS(status),
			      refused ? "refused" : "made");
	return write(1, text, (size_t)length) != length;
}
