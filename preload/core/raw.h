/* SPDX-License-Identifier: MIT */
/*
 * raw.h: system calls without libc. They touch neither errno nor a hook.
 *
 * Results are the kernel's: -errno on failure. Never used on the hot path, and
 * not at all once a seccomp filter may be on (thread.h, system_calls_allowed).
 */
#ifndef LORG_PRELOAD_RAW_H
#define LORG_PRELOAD_RAW_H

#include <stdint.h>
#include <sys/syscall.h>

static inline long raw_syscall6(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

static inline long raw_syscall3(long number, long a, long b, long c)
{
	return raw_syscall6(number, a, b, c, 0, 0, 0);
}

static inline long raw_openat(const char *path, int flags)
{
	return raw_syscall6(SYS_openat, -100, (long)path, flags, 0, 0, 0);
}

static inline long raw_close(int fd)
{
	return raw_syscall3(SYS_close, fd, 0, 0);
}

static inline long raw_pread(int fd, void *buffer, unsigned long length, unsigned long offset)
{
	return raw_syscall6(SYS_pread64, fd, (long)buffer, (long)length, (long)offset, 0, 0);
}

/* Returns the address, or -errno (as an integer above -4096). */
static inline long raw_mmap(void *address, unsigned long length, int protection, int flags, int fd, unsigned long offset)
{
	return raw_syscall6(SYS_mmap, (long)address, (long)length, protection, flags, fd, (long)offset);
}

static inline long raw_munmap(void *address, unsigned long length)
{
	return raw_syscall3(SYS_munmap, (long)address, (long)length, 0);
}

static inline long raw_mremap(void *old, unsigned long old_length, unsigned long new_length, int flags)
{
	return raw_syscall6(SYS_mremap, (long)old, (long)old_length, (long)new_length, flags, 0, 0);
}

static inline long raw_mprotect(void *address, unsigned long length, int protection)
{
	return raw_syscall3(SYS_mprotect, (long)address, (long)length, protection);
}

static inline long raw_madvise(void *address, unsigned long length, int advice)
{
	return raw_syscall3(SYS_madvise, (long)address, (long)length, advice);
}

static inline int raw_getpid(void)
{
	return (int)raw_syscall3(SYS_getpid, 0, 0, 0);
}

static inline int raw_gettid(void)
{
	return (int)raw_syscall3(SYS_gettid, 0, 0, 0);
}

static inline long raw_prctl(int option, unsigned long argument)
{
	return raw_syscall6(SYS_prctl, option, (long)argument, 0, 0, 0, 0);
}

/*
 * Not by nanosleep: where the thread has been taken out of a system call of the program's that goes on afterwards for the rest
 * of its time (late.h), the kernel would forget how long that is.
 */
static inline void raw_sleep_ns(long ns)
{
	struct {
		long seconds, nanoseconds;
	} time = {ns / 1000000000, ns % 1000000000};
	raw_syscall6(SYS_pselect6, 0, 0, 0, 0, (long)&time, 0);
}

static inline int raw_failed(long result)
{
	return result < 0 && result > -4096;
}

#endif
