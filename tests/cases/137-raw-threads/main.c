/* SPDX-License-Identifier: MIT */
/* Threads that no libc knows: made by the system call, with a stack and without thread-local storage of their own. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STACK = 65536, COUNT = 20 };
static volatile int done, numbers[COUNT];

/* clone by hand: the child runs on the new stack, makes two system calls and ends; it touches nothing of libc. */
static long make(char *stack, int *number)
{
	long result;
	register void *top __asm__("rsi") = stack + STACK - 16;
	register long zero __asm__("rdx") = 0;
	register long zero2 __asm__("r10") = 0;
	register long zero3 __asm__("r8") = 0;

	__asm__ volatile("syscall\n"
			 "test %%rax, %%rax\n"
			 "jnz 1f\n"
			 "mov $186, %%eax\n" /* gettid */
			 "syscall\n"
			 "mov %%eax, (%[number])\n"
			 "lock incl %[done]\n"
			 "xor %%edi, %%edi\n"
			 "mov $60, %%eax\n" /* exit */
			 "syscall\n"
			 "1:\n"
			 : "=a"(result), [done] "+m"(done)
			 : "0"(SYS_clone), "D"((long)(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM)), "r"(top),
			   "r"(zero), "r"(zero2), "r"(zero3), [number] "r"(number)
			 : "rcx", "r11", "memory");
	return result;
}

int main(void)
{
	int good = 0;

	for (int i = 0; i < COUNT; i++) {
		char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		long tid = make(stack, (int *)&numbers[i]);
		while (done <= i)
			sched_yield();
		good += tid > 0 && numbers[i] == tid;
		int ends[2];
		char byte = 'x';
		good += pipe(ends) == 0 && write(ends[1], &byte, 1) == 1 && read(ends[0], &byte, 1) == 1;
		close(ends[0]);
		close(ends[1]);
	}
	usleep(10000);
	printf("good %d\n", good);
	return 0;
}
