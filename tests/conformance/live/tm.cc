/* SPDX-License-Identifier: MIT */
/* The traced module of the live scenarios: what tm.erl is to Erlang, natively. Built as tm.so by run_live.py. */
#include <cstdlib>
#include <stdexcept>

#define API extern "C" __attribute__((visibility("default"), noinline, noclone, noipa))
#define OWN extern "C" __attribute__((visibility("hidden"), noinline, noclone, noipa))

API long pub(long x) { return x; }
/* A call within the module, which no slot sees. */
extern "C" __attribute__((visibility("hidden"), alias("pub"))) long pub_here(long x);
API long local_pub(long x) { return pub_here(x) + 10; }
API long tail_local_pub(long x) { return pub_here(x); }

/* Calls by way of the symbol. */
API long remote_pub(long x)
{
	long result;
	__asm__ volatile("call pub@PLT" : "=a"(result), "+D"(x) : : "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
	return result + 10;
}
__asm__(".pushsection .text\n.globl tail_remote_pub\n.type tail_remote_pub,@function\n"
	"tail_remote_pub: .cfi_startproc\n	jmp pub@PLT\n	.cfi_endproc\n.size tail_remote_pub, .-tail_remote_pub\n.popsection\n");

OWN long priv(long x) { return x + 1; }
API long use_priv(long x) { return priv(x) + 10; }

extern "C" __attribute__((visibility("hidden"))) long fact_here(long n);
API long fact(long n)
{
	if (n == 0)
		return 1;
	long rest = fact_here(n - 1);
	__asm__ volatile("" : "+r"(rest)); /* no loop is made of it */
	return n * rest;
}
extern "C" __attribute__((visibility("hidden"), alias("fact"))) long fact_here(long n);

API long boom(long k)
{
	if (k == 0)
		throw std::runtime_error("bad");
	return k + 100;
}
API long guarded(long k)
{
	try {
		return boom(k) + 1;
	} catch (const std::runtime_error &) {
		return -1;
	}
}
OWN long mid(long k) { return boom(k) + 1; }
API long through(long k) { return mid(k) + 1; }
API long deep_catch(long k)
{
	try {
		return through(k) + 1;
	} catch (const std::runtime_error &) {
		return -1;
	}
}

OWN long t3(long x) { return x; }
OWN long t2(long x) { return t3(x); }
OWN long t1(long x) { return t2(x); }
API long mix(long x) { return t1(x) + 10; }
API long run_t1(long x) { return t1(x); }

OWN long c3(long x) { return x; }
OWN long c2(long x) { return c3(x) + 10; }
OWN long c1(long x) { return c2(x) + 10; }
API long run_c1(long x) { return c1(x); }

API long bif(long x) { return labs(x) + 10; }
API long tail_bif(long x) { return labs(x); }

API long two(long a, long b) { return a * 10 + b; }
OWN long inner(long x) { return x; }
API long outer(long x) { return inner(x) * 10 + pub_here(x); }
API long on(long x) { return x; }
API long off(long x) { return x; }

static void *kept;
OWN long mem_inner(long words)
{
	kept = std::malloc((size_t)words * 8);
	std::free(kept);
	return words;
}
API long mem_outer(long words)
{
	kept = std::malloc((size_t)words * 16);
	std::free(kept);
	return mem_inner(words) + 1;
}
