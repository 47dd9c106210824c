/* SPDX-License-Identifier: MIT */
/* exceptions.cc: C++ exceptions through hooked calls: what is told, and that nothing else changes. Prints what is wrong. */
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <thread>

#define _Static_assert static_assert

extern "C" {
#include <lorg/abi.h>
#include <lorg/events.h>
}
#include "tests/unit/call/support.h"

namespace {

int checks, failures;

void fail(const char *what, const std::string &is, const std::string &should)
{
	failures++;
	std::fprintf(stderr, ":F:%s: %s, not %s\n", what, is.c_str(), should.c_str());
}

template <typename T> T field(const unsigned char *at)
{
	T value;
	std::memcpy(&value, at, sizeof value);
	return value;
}

/* What has been recorded: c1 call, r1 return, x1(type:what) left, t return_to, C catch, T throw. */
std::string events()
{
	const uint8_t *packets[64];
	size_t sizes[64], count = support_packets(packets, sizes, 64);
	std::string text;
	for (size_t i = 0; i < count; i++)
		for (size_t at = LORG_PACKET_HEAD; at < sizes[i];) {
			const unsigned char *event = packets[i] + at;
			uint32_t word = field<uint32_t>(event), id = word & 31, length = 8;
			const unsigned char *fields = event + 4;
			if (id == LORG_EVENT_EXTENDED) {
				id = field<uint16_t>(event + 4);
				length = field<uint16_t>(event + 6);
				fields = event + 16;
			}
			at += length ? length : 8;
			if (id == LORG_EVENT_CALL_ENTRY)
				text += "c" + std::to_string(field<uint32_t>(fields) - LORG_FIRST_HOOKED_FUNCTION) + " ";
			else if (id == LORG_EVENT_RETURN)
				text += "r" + std::to_string(field<uint32_t>(fields) - LORG_FIRST_HOOKED_FUNCTION) + " ";
			else if (id == LORG_EVENT_RETURN_FROM)
				text += "r" + std::to_string(field<uint32_t>(fields + 8) - LORG_FIRST_HOOKED_FUNCTION) + " ";
			else if (id == LORG_EVENT_CALL)
				text += "c" + std::to_string(field<uint32_t>(fields + 8) - LORG_FIRST_HOOKED_FUNCTION) + " ";
			else if (id == LORG_EVENT_RETURN_TO)
				text += "t ";
			else if (id == LORG_EVENT_THROW)
				text += "T ";
			else if (id == LORG_EVENT_CATCH || id == LORG_EVENT_CATCH_AGAIN)
				text += "C ";
			else if (id == LORG_EVENT_EXCEPTION_FROM) {
				auto left = field<lorg_event_EXCEPTION_FROM>(fields);
				const char *bytes = reinterpret_cast<const char *>(fields + sizeof left);
				text += "x" + std::to_string(left.function - LORG_FIRST_HOOKED_FUNCTION) + "(" +
					std::string(bytes, left.type_length) + ":" +
					std::string(bytes + left.type_length, left.what_length) + ") ";
			}
		}
	return text;
}

void expect(const char *name, const std::string &should)
{
	checks++;
	std::string is = events();
	if (is != should)
		fail(name, is, should);
	support_forget_events();
}

int (*hooked_thrower)(int), (*hooked_middle)(int), (*hooked_again)(int), (*hooked_destructor)(int), (*hooked_deep)(int);

__attribute__((noinline)) int thrower(int x)
{
	if (x == 1)
		throw std::runtime_error("no such luck");
	if (x == 2)
		throw 42;
	return x;
}

__attribute__((noinline)) int destructor(int x)
{
	if (x == 7) { /* an exception of its own on the way */
		try {
			hooked_thrower(2);
		} catch (int) {
		}
	}
	asm volatile("");
	return x;
}

struct guard {
	int value;
	~guard() { hooked_destructor(value); }
};

int with_guard;
__attribute__((noinline)) int middle(int x)
{
	if (!with_guard) {
		int result = hooked_thrower(x);
		asm volatile("");
		return result + 1;
	}
	guard local{with_guard};
	int result = hooked_thrower(x);
	asm volatile("");
	return result + 1;
}

__attribute__((noinline)) int again(int x)
{
	try {
		return hooked_middle(x) + 1;
	} catch (...) {
		throw;
	}
}

__attribute__((noinline)) int deep(int x)
{
	int result = x ? hooked_deep(x - 1) : hooked_thrower(1);
	asm volatile("");
	return result;
}

template <typename F> std::string caught(F function)
{
	try {
		function();
	} catch (const std::exception &exception) {
		return exception.what();
	} catch (int number) {
		return std::to_string(number);
	}
	return "nothing";
}

void check(const char *name, const std::string &is, const std::string &should)
{
	checks++;
	if (is != should)
		fail(name, is, should);
}

void handler(int)
{
	check("on a signal stack", caught([] { hooked_middle(1); }), "no such luck");
}

}

int main()
{
	const uint32_t plain = LORG_CALL_ENTRY | LORG_CALL_RETURN;
	support_attach(64);
	hooked_thrower = reinterpret_cast<int (*)(int)>(support_hook(1, reinterpret_cast<void *>(thrower), plain, 0, nullptr, nullptr));
	hooked_middle = reinterpret_cast<int (*)(int)>(support_hook(2, reinterpret_cast<void *>(middle), plain, 0, nullptr, nullptr));
	hooked_again = reinterpret_cast<int (*)(int)>(support_hook(3, reinterpret_cast<void *>(again), plain, 0, nullptr, nullptr));
	hooked_destructor = reinterpret_cast<int (*)(int)>(support_hook(4, reinterpret_cast<void *>(destructor), plain, 0, nullptr, nullptr));
	hooked_deep = reinterpret_cast<int (*)(int)>(support_hook(5, reinterpret_cast<void *>(deep), plain, 0, nullptr, nullptr));
	const std::string error = "(St13runtime_error:no such luck) ", number = "(i:) ";
	support_forget_events();

	check("through two", caught([] { hooked_middle(1); }), "no such luck");
	hooked_thrower(0);
	expect("through two", "c2 c1 T x1" + error + "x2" + error + "C c1 r1 ");

	with_guard = 5;
	check("with a cleanup", caught([] { hooked_middle(2); }), "42");
	expect("with a cleanup", "c2 c1 T x1" + number + "c4 r4 x2" + number + "C ");
	with_guard = 7;
	check("with an exception in a cleanup", caught([] { hooked_middle(1); }), "no such luck");
	expect("with an exception in a cleanup", "c2 c1 T x1" + error + "c4 c1 T x1" + number + "C r4 x2" + error + "C ");
	with_guard = 0;

	check("rethrown", caught([] { hooked_again(2); }), "42");
	expect("rethrown", "c3 c2 c1 T x1" + number + "x2" + number + "C T x3" + number + "C ");

	support_gate(2, plain | LORG_CALL_RETURN_TO);
	support_gate(1, plain | LORG_CALL_VALUES);
	check("with a return_to", caught([] { hooked_middle(1); }), "no such luck");
	expect("with a return_to", "c2 c1 T x1" + error + "x2" + error + "t C ");
	support_gate(2, plain);
	support_gate(1, plain);

	for (int gates = 0; gates < 3; gates++) {
		support_gate(5, gates == 0 ? plain : gates == 1 ? plain | LORG_CALL_VALUES : LORG_CALL_TIME | LORG_CALL_MEMORY);
		for (int i = 0; i < 200; i++) {
			check("deep", caught([i] { hooked_deep(i); }), "no such luck");
			support_forget_events();
		}
	}
	support_gate(5, plain);

	std::thread([] { check("in a thread", caught([] { hooked_deep(50); }), "no such luck"); }).join();

	stack_t stack{};
	stack.ss_size = 1 << 17;
	stack.ss_sp = mmap(nullptr, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sigaltstack(&stack, nullptr);
	struct sigaction action{};
	action.sa_handler = handler;
	action.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR1, &action, nullptr);
	support_forget_events();
	raise(SIGUSR1);
	expect("on a signal stack", "c2 c1 T x1" + error + "x2" + error + "C ");
	/* As Check ends, for who counts. */
	std::printf("%d%%: Checks: %d, Failures: %d, Errors: 0\n", (checks - failures) * 100 / checks, checks, failures);
	return failures != 0;
}
