/* SPDX-License-Identifier: MIT */
/*
 * handler.c: the receipt of a signal by a handler.
 *
 * The program's handler is installed by way of an entry of ours (see
 * handler_entry.h), with SA_SIGINFO, so that the sender is known; what the
 * program asks back is its own handler with its own flags. The entry tells of
 * the signal and jumps to the handler: no frame of ours is on the stack while
 * it runs, nor when it returns, jumps or throws, and errno, mask and stack are
 * what the kernel made them.
 *
 * Default and ignored stay what they are; nothing is done before we are
 * attached, and never to the signals of the C library itself (it refuses them).
 */
#include <signal.h>
#include <ucontext.h>

#include "preload/call/call.h"
#include "preload/core/raw.h"
#include "preload/core/attach_late.h"
#include "preload/hooks/message_match.h"
#include "preload/hook.h"
#include "preload/hooks/handler_entry.h"
#include "preload/resolve/resolve.h"

enum { EVERY_RECEIPT = LORG_GATE_PROCESS | LORG_GATE_MESSAGE, HANDLER_ENTRY_NONE = -1, FLAG_INTERRUPT = 0x20000000 };

extern HIDDEN const char handler_entries[];

/* The handler of each entry. Taken by a CAS from 0, never changed after. */
static uintptr_t handlers[HANDLER_ENTRY_COUNT];

/* ---- entries and handlers ---- */

static uintptr_t entry_address(int entry)
{
	return (uintptr_t)handler_entries + (uintptr_t)entry * HANDLER_ENTRY_SIZE;
}

/* The entry at an address, or HANDLER_ENTRY_NONE. */
static int entry_at(uintptr_t address)
{
	uintptr_t offset = address - (uintptr_t)handler_entries;
	if (offset >= (uintptr_t)HANDLER_ENTRY_COUNT * HANDLER_ENTRY_SIZE || offset % HANDLER_ENTRY_SIZE)
		return HANDLER_ENTRY_NONE;
	int entry = (int)(offset / HANDLER_ENTRY_SIZE);
	return __atomic_load_n(&handlers[entry], __ATOMIC_ACQUIRE) ? entry : HANDLER_ENTRY_NONE;
}

/* The entry of a handler between `first` and `end`, given to it now if it has none. HANDLER_ENTRY_NONE: all are given. */
static int entry_for(uintptr_t handler, int first, int end)
{
	int count = end - first;
	int home = (int)(handler * 0x9e3779b97f4a7c15u >> 40) % count;
	for (int probe = 0; probe < count; probe++) {
		int entry = first + (home + probe) % count;
		uintptr_t seen = __atomic_load_n(&handlers[entry], __ATOMIC_ACQUIRE);
		/* Release: pairs with the load in handler_run, perhaps of another thread. */
		if (!seen &&
		    __atomic_compare_exchange_n(&handlers[entry], &seen, handler, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return entry;
		if (seen == handler)
			return entry;
	}
	return HANDLER_ENTRY_NONE;
}

static int is_function(sighandler_t handler)
{
	return handler != SIG_DFL && handler != SIG_IGN && handler != SIG_ERR && handler != SIG_HOLD;
}

static int is_attached(void)
{
	return the_arena.shared && hook_gates == the_arena.shared->gate;
}

static void tell_uncovered(void)
{
	static uint32_t told;
	struct thread *self = thread_self();
	/* Relaxed: only keeps the sentence from being said twice. */
	if (self && !__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED))
		event_gap(self, "signal handlers", "more different handlers than there are entries for them");
}

/* The entry to install for a handler; the handler itself where it cannot or need not be seen. */
static uintptr_t cover(uintptr_t handler, int first, int end)
{
	if (!is_attached() || !is_function((sighandler_t)handler) || entry_at(handler) != HANDLER_ENTRY_NONE)
		return handler;
	int entry = entry_for(handler, first, end);
	if (entry != HANDLER_ENTRY_NONE)
		return entry_address(entry);
	tell_uncovered();
	return handler;
}

static int cover_action(struct sigaction *action)
{
	uintptr_t handler = (uintptr_t)action->sa_sigaction;
	int informed = (action->sa_flags & SA_SIGINFO) != 0;
	uintptr_t entry = informed ? cover(handler, HANDLER_INFORMED_FIRST, HANDLER_UNINFORMED_FIRST)
				   : cover(handler, HANDLER_PLAIN_FIRST, HANDLER_INFORMED_FIRST);
	if (entry == handler)
		return 0;
	action->sa_sigaction = (void (*)(int, siginfo_t *, void *))entry;
	action->sa_flags |= SA_SIGINFO;
	return 1;
}

static sighandler_t uncover(sighandler_t handler)
{
	int entry = entry_at((uintptr_t)handler);
	return entry == HANDLER_ENTRY_NONE ? handler : (sighandler_t)__atomic_load_n(&handlers[entry], __ATOMIC_RELAXED);
}

static void uncover_action(struct sigaction *action)
{
	int entry = entry_at((uintptr_t)action->sa_sigaction);
	if (entry == HANDLER_ENTRY_NONE)
		return;
	action->sa_handler = uncover(action->sa_handler);
	if (entry < HANDLER_INFORMED_FIRST)
		action->sa_flags &= ~SA_SIGINFO;
}

/* ---- the receipt ---- */

static int has_sender(int signal, int code)
{
	return code == SI_USER || code == SI_QUEUE || code == SI_TKILL || code == SI_MESGQ ||
	       (signal == SIGCHLD && code > 0);
}

static uint64_t signal_value(int signal, const siginfo_t *information)
{
	switch (information->si_code) {
	case SI_QUEUE:
	case SI_TIMER:
	case SI_MESGQ:
	case SI_ASYNCIO: return (uintptr_t)information->si_value.sival_ptr;
	case SI_USER:
	case SI_TKILL:
	case SI_KERNEL: return 0;
	default: break;
	}
	switch (signal) {
	case SIGCHLD: return (uint64_t)(uint32_t)information->si_status;
	case SIGSEGV:
	case SIGBUS:
	case SIGFPE:
	case SIGILL:
	case SIGTRAP: return (uintptr_t)information->si_addr;
	default: return 0;
	}
}

/* information NULL: the kernel gave none. */
static __attribute__((noinline)) void tell_receipt(int signal, const siginfo_t *information)
{
	struct thread *self = thread_self();
	struct lorg_event_SIGNAL_RECEIVED event = {.signal = (uint32_t)signal, .hook = HOOK_sigaction};
	if (!self)
		return;
	arena_look(); /* no call of this program's may have passed a hook since somebody asked */
	if (!session_wants(LORG_MASK_RECEIVE))
		return;
	if (information) {
		event.code = information->si_code;
		event.value = signal_value(signal, information);
		if (has_sender(signal, information->si_code)) {
			event.from_pid = (uint32_t)information->si_pid;
			event.from_uid = information->si_uid;
		}
	}
	write_signal_received(self, &event);
}

/* Met by the instruction itself, not sent. */
static int is_fault(int signal, const siginfo_t *information)
{
	return (signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL) && information->si_code > 0;
}

/*
 * Where the fault was met in the hooked entry of a function (else: 0) the handler runs here, and is shown where it would
 * have been in the function itself. What the handler changes stays; else the program goes on where it really was.
 */
static __attribute__((noinline)) int has_run_as_unhooked(uintptr_t handler, int signal, siginfo_t *information, ucontext_t *context)
{
	greg_t *registers = context->uc_mcontext.gregs;
	greg_t address = registers[REG_RIP], stack = registers[REG_RSP];
	struct call_fault shown;
	if (!call_fault_shown((uintptr_t)address, (uintptr_t)stack, &shown))
		return 0;
	registers[REG_RIP] = (greg_t)shown.address;
	registers[REG_RSP] = (greg_t)shown.stack;
	((void (*)(int, siginfo_t *, void *))handler)(signal, information, context);
	if (registers[REG_RIP] == (greg_t)shown.address && registers[REG_RSP] == (greg_t)shown.stack) {
		registers[REG_RIP] = address;
		registers[REG_RSP] = stack;
	}
	return 1;
}

/* Where every entry jumps to, and where the handler's frame takes our place. */
HIDDEN void handler_run(int signal, siginfo_t *information, void *context, uint32_t entry);

void handler_run(int signal, siginfo_t *information, void *context, uint32_t entry)
{
	/* Acquire: pairs with the CAS of whoever gave the entry away. */
	uintptr_t handler = __atomic_load_n(&handlers[entry], __ATOMIC_ACQUIRE);
	if (hook_gate(HOOK_sigaction) & EVERY_RECEIPT)
		tell_receipt(signal, entry < HANDLER_UNINFORMED_FIRST ? information : 0);
	if (entry < HANDLER_UNINFORMED_FIRST && is_fault(signal, information) &&
	    has_run_as_unhooked(handler, signal, information, context))
		return;
	((void (*)(int, siginfo_t *, void *))handler)(signal, information, context);
}

/* ---- all at once ---- */

struct kernel_action {
	uintptr_t handler;
	uint64_t flags;
	uintptr_t restorer;
	uint64_t mask;
};

static int exchange_action(int signal, const struct kernel_action *action, struct kernel_action *old)
{
	return raw_failed(raw_syscall6(SYS_rt_sigaction, signal, (long)action, (long)old, sizeof action->mask, 0, 0));
}

/* Puts `wanted` where `seen` stands. Where another thread has set something else meanwhile, that is put back. */
static void replace_action(int signal, const struct kernel_action *wanted, const struct kernel_action *seen)
{
	struct kernel_action old;
	if (exchange_action(signal, wanted, &old) == 0 && (old.handler != seen->handler || old.flags != seen->flags))
		exchange_action(signal, &old, 0);
}

void handlers_cover(void)
{
	for (int signal = 1; signal < NSIG; signal++) {
		struct kernel_action seen, ours;
		struct sigaction action;
		if (exchange_action(signal, 0, &seen))
			continue;
		action = (struct sigaction){.sa_flags = (int)seen.flags};
		action.sa_handler = (sighandler_t)seen.handler;
		if (!cover_action(&action))
			continue;
		ours = seen;
		ours.handler = (uintptr_t)action.sa_sigaction;
		ours.flags |= SA_SIGINFO;
		replace_action(signal, &ours, &seen);
	}
}

void handlers_uncover(void)
{
	for (int signal = 1; signal < NSIG; signal++) {
		struct kernel_action seen, own;
		if (exchange_action(signal, 0, &seen) || entry_at(seen.handler) == HANDLER_ENTRY_NONE)
			continue;
		struct sigaction action = {.sa_flags = (int)seen.flags};
		action.sa_handler = (sighandler_t)seen.handler;
		uncover_action(&action);
		own = seen;
		own.handler = (uintptr_t)action.sa_handler;
		if (!(action.sa_flags & SA_SIGINFO))
			own.flags &= ~(uint64_t)SA_SIGINFO;
		replace_action(signal, &own, &seen);
	}
}

/* ---- sigaction ---- */

static int set_action(hook_type_sigaction real, int signal, const struct sigaction *action, struct sigaction *old)
{
	struct sigaction ours;
	if (action) {
		ours = *action;
		if (cover_action(&ours))
			action = &ours;
	}
	int result = real(signal, action, old);
	if (result == 0 && old)
		uncover_action(old);
	return result;
}

int hook_sigaction(int signal, const struct sigaction *action, struct sigaction *old)
{
	return set_action(REAL(sigaction), signal, action, old);
}

int hook___sigaction(int signal, const struct sigaction *action, struct sigaction *old)
{
	return set_action(REAL(__sigaction), signal, action, old);
}

/* ---- signal and its kin ---- */

/* Signals that siginterrupt has made to interrupt; as libc keeps it, for signal(). Atomic. */
static uint64_t interrupting;

static uint64_t signal_bit(int signal)
{
	return 1ull << ((unsigned)signal - 1) % 64;
}

int hook_siginterrupt(int signal, int flag)
{
	int result = REAL(siginterrupt)(signal, flag);
	if (result == 0 && flag)
		__atomic_fetch_or(&interrupting, signal_bit(signal), __ATOMIC_RELAXED);
	else if (result == 0)
		__atomic_fetch_and(&interrupting, ~signal_bit(signal), __ATOMIC_RELAXED);
	return result;
}

/* True when what stands behind us is the C library's: then it is known what it does with sigaction. */
static int is_of_libc(uint32_t hook)
{
	const struct link_map *libc = object_find("libc.so.6");
	return libc && symbol_find_in(libc, hook_table[hook].name, "", 0) == hook_real(hook);
}

/*
 * signal() sets handlers without SA_SIGINFO, and then no one tells who sent. So libc's is done in its own way, with
 * sigaction; another library's is left to do what it does.
 */
static sighandler_t set_handler(uint32_t hook, int signal, sighandler_t handler, int flags)
{
	hook_type_signal real = (hook_type_signal)hook_real(hook);
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags}, old;
	if (signal < 1 || signal >= NSIG || !is_of_libc(hook) || !cover_action(&action))
		return uncover(real(signal, handler));
	if (!(flags & SA_NODEFER))
		memcpy(&action.sa_mask, &(uint64_t){signal_bit(signal)}, sizeof(uint64_t));
	if (REAL(sigaction)(signal, &action, &old) < 0)
		return SIG_ERR;
	return uncover(old.sa_handler);
}

static sighandler_t set_handler_bsd(uint32_t hook, int signal, sighandler_t handler)
{
	int interrupts = (__atomic_load_n(&interrupting, __ATOMIC_RELAXED) & signal_bit(signal)) != 0;
	return set_handler(hook, signal, handler, interrupts ? 0 : SA_RESTART);
}

static sighandler_t set_handler_sysv(uint32_t hook, int signal, sighandler_t handler)
{
	return set_handler(hook, signal, handler, (int)SA_RESETHAND | SA_NODEFER | FLAG_INTERRUPT);
}

sighandler_t hook_signal(int signal, sighandler_t routine)
{
	return set_handler_bsd(HOOK_signal, signal, routine);
}

sighandler_t hook_bsd_signal(int signal, sighandler_t routine)
{
	return set_handler_bsd(HOOK_bsd_signal, signal, routine);
}

sighandler_t hook_ssignal(int signal, sighandler_t routine)
{
	return set_handler_bsd(HOOK_ssignal, signal, routine);
}

sighandler_t hook_sysv_signal(int signal, sighandler_t routine)
{
	return set_handler_sysv(HOOK_sysv_signal, signal, routine);
}

sighandler_t hook___sysv_signal(int signal, sighandler_t routine)
{
	return set_handler_sysv(HOOK___sysv_signal, signal, routine);
}

/* Changes the mask, too: left to libc, at the price of not knowing the sender. */
sighandler_t hook_sigset(int signal, sighandler_t routine)
{
	uintptr_t entry = cover((uintptr_t)routine, HANDLER_UNINFORMED_FIRST, HANDLER_ENTRY_COUNT);
	return uncover(REAL(sigset)(signal, (sighandler_t)entry));
}
