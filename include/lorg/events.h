/* SPDX-License-Identifier: MIT */
/*
 * events.h: every event, one table. Structures, decoder, CTF metadata and
 * documentation come from it.
 *
 * Encoding. Events are aligned to eight bytes and begin with one 32-bit word.
 *
 *   compact   word = id | tick << 5, then the fields (ids 1 to 30: fixed size)
 *   extended  word = 31, u16 id, u16 length, u64 tick, then the fields
 *
 * The 27 tick bits continue the stamp before; the extended form is used for
 * ids above 30, and for any id when 2^27 ticks or more have passed. `length`
 * is that of the whole event in bytes, a multiple of eight: a reader skips
 * what it does not know by it.
 *
 * Fields are packed in the order given. TEXT(x) and BLOB(x) put u32 x_length
 * among them; their bytes follow all fixed fields, in order. TEXT is meant to
 * be read by people (any bytes may occur); a BLOB is binary.
 *
 * An event whose first field is `entry` is written when a call returns and
 * tells of its entry: its effective tick, which orders it, is `entry`. Where
 * the first field is `before`, that is the distance in ticks from there to
 * the stamp.
 *
 * Most events are shown as they are written. Some tell of a whole call at its
 * return and are shown as the two or three events that the call was: SENT,
 * RECEIVED, WAITED; some are shorter forms of others (collector/read/part.h).
 *
 * `hook` fields are hook ids, named by HOOK events. Addresses are the
 * program's. `error` is an errno or 0. Ids are never reused for other things.
 */
#ifndef LORG_EVENTS_H
#define LORG_EVENTS_H

#include <stdint.h>

enum {
	LORG_EVENT_COMPACT_LAST = 30,
	LORG_EVENT_EXTENDED = 31,
	LORG_EVENT_FILLER = 0xffff,    /* extended id: reserved, not committed; not in files */
	LORG_EVENT_WITHDRAWN = 0xfffe, /* extended id: was an event, counts no more; not in files */
};

#define LORG_TICK_BITS 27
#define LORG_TICK_MASK ((1u << LORG_TICK_BITS) - 1)

struct lorg_extended {
	uint32_t word; /* LORG_EVENT_EXTENDED */
	uint16_t id;
	uint16_t length;
	uint64_t tick;
};

_Static_assert(sizeof(struct lorg_extended) == 16, "lorg_extended");

/* ---- compact ids ------------------------------------------------------- */

/* -finstrument-functions: u32 slot in the function table. */
#define LORG_FIELDS_ENTER(U64, U32, I64, I32, TEXT, BLOB) U32(function)
#define LORG_FIELDS_EXIT_FUNCTION(U64, U32, I64, I32, TEXT, BLOB) U32(function)
/* __func_trace_*: the slot and the line that the compiler passed. */
#define LORG_FIELDS_ENTER_LINE(U64, U32, I64, I32, TEXT, BLOB) U32(function) U32(line)
#define LORG_FIELDS_EXIT_LINE(U64, U32, I64, I32, TEXT, BLOB) U32(function) U32(line)
#define LORG_FIELDS_CATCH_LINE(U64, U32, I64, I32, TEXT, BLOB) U32(function) U32(line)
/* Hooked calls of tiers 2 and 3. */
#define LORG_FIELDS_CALL_ENTRY(U64, U32, I64, I32, TEXT, BLOB) U32(function)
#define LORG_FIELDS_RETURN(U64, U32, I64, I32, TEXT, BLOB) U32(function)

/*
 * What did not wait, short: shown as ACQUIRED, RELEASED, ALLOCATE and FREE. caller_hook: return address, hook << 48. What
 * does not fit (a block of 4 GiB, an alignment, an old block) is told by the long forms.
 */
#define LORG_FIELDS_LOCK_TAKEN(U64, U32, I64, I32, TEXT, BLOB) U32(hook) U64(object)
#define LORG_FIELDS_LOCK_GIVEN_BACK(U64, U32, I64, I32, TEXT, BLOB) U32(hook) U64(object)
#define LORG_FIELDS_BLOCK_TAKEN(U64, U32, I64, I32, TEXT, BLOB) U32(size) U64(result) U64(caller_hook)
#define LORG_FIELDS_BLOCK_GIVEN_BACK(U64, U32, I64, I32, TEXT, BLOB) U32(hook) U64(pointer)

/* ---- calls ------------------------------------------------------------- */

/*
 * terms: encoded arguments or values (include/lorg/term.h), one a parameter; none where nothing is known of them.
 * caller: the return address. session_kind: slot of the session, kind << 16 (enum lorg_call_kind of plan.h), and
 * LORG_CALL_HAS_MESSAGE. An event that has session_kind is that session's alone; slot 0: a private collector's only one.
 */
#define LORG_FIELDS_CALL(U64, U32, I64, I32, TEXT, BLOB) U64(caller) U32(function) U32(session_kind) BLOB(terms)
#define LORG_FIELDS_RETURN_FROM(U64, U32, I64, I32, TEXT, BLOB) U64(since) U32(function) I32(error) U32(session_kind) BLOB(terms)
#define LORG_FIELDS_RETURN_TO(U64, U32, I64, I32, TEXT, BLOB) U64(address) U32(session_kind) U32(reserved)
/* The call that began at `since` (0: not kept; the newest that is open) is left. kind 0: throw, 1: pthread_exit, 2: longjmp, 3: cancelled. */
#define LORG_FIELDS_EXCEPTION_FROM(U64, U32, I64, I32, TEXT, BLOB) \
	U64(since) U32(function) U32(kind) U32(session_kind) TEXT(type) TEXT(what)
/*
 * A whole call, told at its return because only calls that last long enough are asked for: shown as CALL (of `entry`)
 * and RETURN_FROM. returned 0: it was left by an exception or a jump, which EXCEPTION_FROM tells.
 */
#define LORG_FIELDS_CALL_DONE(U64, U32, I64, I32, TEXT, BLOB) \
	U64(entry) U64(caller) U32(function) U32(session_kind) I32(error) U32(returned) BLOB(terms) BLOB(result)
/* __cxa_throw (hook tells which), __cxa_begin_catch. type: mangled. */
#define LORG_FIELDS_THROW(U64, U32, I64, I32, TEXT, BLOB) U64(object) U64(caller) U32(hook) TEXT(type)
#define LORG_FIELDS_CATCH(U64, U32, I64, I32, TEXT, BLOB) U64(object) U64(caller) U32(hook) TEXT(type)
/* The catch of an exception that has been caught before and thrown again by its handler: each is caught once. */
#define LORG_FIELDS_CATCH_AGAIN(U64, U32, I64, I32, TEXT, BLOB) LORG_FIELDS_CATCH(U64, U32, I64, I32, TEXT, BLOB)
/* enter and exit where the function table is full. */
#define LORG_FIELDS_ENTER_ADDRESS(U64, U32, I64, I32, TEXT, BLOB) U64(address)
#define LORG_FIELDS_EXIT_ADDRESS(U64, U32, I64, I32, TEXT, BLOB) U64(address)

/* ---- processes and programs -------------------------------------------- */

/* how: enum lorg_birth. child_image: zero for a thread. routine, argument: a thread's start. argv: zero-separated. */
#define LORG_FIELDS_SPAWN(U64, U32, I64, I32, TEXT, BLOB) \
	U64(entry) U64(child_image_low) U64(child_image_high) U64(routine) U64(argument) U64(caller) U32(how) U32(hook) U32(child_pid) \
	U32(child_tid) TEXT(file) BLOB(argv)
#define LORG_FIELDS_SPAWNED(U64, U32, I64, I32, TEXT, BLOB) \
	U64(parent_image_low) U64(parent_image_high) U64(routine) U64(argument) U64(caller) U32(how) U32(parent_pid) U32(parent_tid) \
	U32(reserved) TEXT(file) BLOB(argv)
/* Written before execve; when that fails it becomes EXEC_FAILED in place, with the same fields. */
#define LORG_FIELDS_EXEC(U64, U32, I64, I32, TEXT, BLOB) U32(hook) I32(error) TEXT(file) BLOB(argv)
#define LORG_FIELDS_EXEC_FAILED(U64, U32, I64, I32, TEXT, BLOB) U32(hook) I32(error) TEXT(file) BLOB(argv)
/* of a process (program = 0), or of the whole program. reason: enum lorg_reason. outside: written by the collector. */
#define LORG_FIELDS_EXIT(U64, U32, I64, I32, TEXT, BLOB) U32(program) U32(reason) I32(status) U32(outside) U32(hook) U32(reserved)
/*
 * Wait family: the child's pid, tid 0, and the status as wait(2) has it, -1 where the program did not ask for it.
 * Joins: the thread. Stamped when the call returns: `since` is its entry.
 */
#define LORG_FIELDS_REAPED(U64, U32, I64, I32, TEXT, BLOB) U64(since) U32(hook) U32(pid) U32(tid) I32(status)
/* kind 0: process name, 1: port address. */
#define LORG_FIELDS_REGISTER(U64, U32, I64, I32, TEXT, BLOB) U32(kind) U32(tid) I32(fd) U32(generation) TEXT(name) BLOB(address)
#define LORG_FIELDS_UNREGISTER(U64, U32, I64, I32, TEXT, BLOB) U32(kind) U32(tid) I32(fd) U32(generation) TEXT(name) BLOB(address)
#define LORG_FIELDS_LINK(U64, U32, I64, I32, TEXT, BLOB) U32(pid) U32(tid) I32(fd) U32(generation)
#define LORG_FIELDS_UNLINK(U64, U32, I64, I32, TEXT, BLOB) U32(pid) U32(tid) I32(fd) U32(generation)
#define LORG_FIELDS_GETTING_LINKED(U64, U32, I64, I32, TEXT, BLOB) U32(pid) U32(tid) I32(fd) U32(generation)
#define LORG_FIELDS_GETTING_UNLINKED(U64, U32, I64, I32, TEXT, BLOB) U32(pid) U32(tid) I32(fd) U32(generation)

/* ---- messages ---------------------------------------------------------- */

/*
 * object: the descriptor, or 2^31 + msqid, or a runtime's queue. channel: of the node's table (abi.h), 0 unknown;
 * offset: of its first byte in the channel; of datagrams and queues: number of the message * LORG_MESSAGE_DISTANCE.
 * bytes: moved; requested: asked for. address: sockaddr of the peer where the call names it. waited: 1 when the call could block and blocked. cause in SIGNAL_RECEIVED: si_code.
 * value: the term that {message, V} of a match specification adds; mostly none.
 * session, in these and in TIMEOUT and signals: 0: for all sessions that have no match specification of such messages of
 * their own (a private collector's only one, whether it has or not); else the slot of the one whose specification let it
 * through. as_port 1: it was asked as the port's own message: a SEND as what the port receives, a RECEIVE as what it sends.
 */
#define LORG_FIELDS_SEND(U64, U32, I64, I32, TEXT, BLOB) \
	U64(entry) U64(object) U64(channel) U64(offset) U64(bytes) U64(requested) U32(hook) U32(generation) U32(flags) I32(error) \
	U32(session) U32(as_port) BLOB(address) BLOB(message) BLOB(value)
#define LORG_FIELDS_SEND_TO_NON_EXISTING(U64, U32, I64, I32, TEXT, BLOB) LORG_FIELDS_SEND(U64, U32, I64, I32, TEXT, BLOB)
/* Stamped when the call returns: `since` is its entry. */
#define LORG_FIELDS_RECEIVE(U64, U32, I64, I32, TEXT, BLOB) \
	U64(since) U64(object) U64(channel) U64(offset) U64(bytes) U64(requested) U32(hook) U32(generation) U32(flags) I32(error) \
	U32(session) U32(as_port) BLOB(address) BLOB(message) BLOB(value)
#define LORG_FIELDS_TIMEOUT(U64, U32, I64, I32, TEXT, BLOB) \
	U64(since) U64(object) I64(limit_ns) U32(hook) I32(error) U32(session) U32(reserved)
/*
 * A call that moved a message, short: shown as SEND or RECEIVE, and with LORG_MESSAGE_RUNNING in its flags as OUT and IN
 * too. before: ticks from the entry to the stamp, which is the return. port: descriptor, generation << 16. hook_flags: hook,
 * flags << 16. What does not fit, or has an address or a time-out, is told by the long forms.
 */
#define LORG_FIELDS_SENT(U64, U32, I64, I32, TEXT, BLOB) \
	U32(before) U32(port) U64(caller) U64(offset) U32(channel) U32(bytes) U32(requested) U32(hook_flags) BLOB(message)
#define LORG_FIELDS_RECEIVED(U64, U32, I64, I32, TEXT, BLOB) LORG_FIELDS_SENT(U64, U32, I64, I32, TEXT, BLOB)
/* target 0: a process (to_tid, 0 for a whole program), 1: a group, 2: all. */
#define LORG_FIELDS_SIGNAL_SENT(U64, U32, I64, I32, TEXT, BLOB) \
	U64(entry) U64(value) U32(signal) U32(hook) U32(target) I32(to_pid) U32(to_tid) I32(error) U32(session) BLOB(message_value)
/* how 0: handler entry, 1: sigwait family, 2: signalfd. */
#define LORG_FIELDS_SIGNAL_RECEIVED(U64, U32, I64, I32, TEXT, BLOB) \
	U64(value) U32(signal) U32(hook) U32(how) I32(code) U32(from_pid) U32(from_uid) U32(session) BLOB(message_value)

/* ---- ports ------------------------------------------------------------- */

/* hook 0xffffffff: inherited, seen at first use. from: descriptor it duplicates, -1 none. addresses: sockaddr. */
#define LORG_FIELDS_OPEN(U64, U32, I64, I32, TEXT, BLOB) \
	U64(channel_in) U64(channel_out) U64(inode) I32(fd) U32(generation) U32(driver) U32(hook) I32(from) U32(flags) TEXT(name) \
	BLOB(local) BLOB(peer)
#define LORG_FIELDS_CLOSED(U64, U32, I64, I32, TEXT, BLOB) I32(fd) U32(generation) U32(reason) I32(status) U32(hook) U32(driver)
#define LORG_FIELDS_CONNECTED(U64, U32, I64, I32, TEXT, BLOB) U64(entry) I32(fd) U32(generation) U32(hook) I32(error) BLOB(peer)
/* A descriptor in SCM_RIGHTS. direction 0 sent, 1 received; over: the socket it travels on. */
#define LORG_FIELDS_PASSED(U64, U32, I64, I32, TEXT, BLOB) I32(fd) U32(generation) I32(over) U32(direction)

/* ---- scheduling -------------------------------------------------------- */

/* object: what it waits on (descriptor, address of the lock, pid). timeout_ns: -1 none. caller: return address. */
#define LORG_FIELDS_OUT(U64, U32, I64, I32, TEXT, BLOB) U64(object) I64(timeout_ns) U64(caller) U32(hook) U32(ending)
#define LORG_FIELDS_IN(U64, U32, I64, I32, TEXT, BLOB) U64(since) U64(object) I64(result) U32(hook) U32(ending) I32(error) U32(reserved)
/* OUT and IN of a wait that has ended. ending: bit 0 that of OUT, bit 1 that of IN. */
#define LORG_FIELDS_WAITED(U64, U32, I64, I32, TEXT, BLOB) \
	U64(entry) U64(object) I64(timeout_ns) I64(result) U64(caller) U32(hook) U32(ending) I32(error) U32(reserved)
/* The OUT of a wait that was begun at `entry` and has not ended: left by a jump, interrupted by another, or open at the end. */
#define LORG_FIELDS_WAIT_OPEN(U64, U32, I64, I32, TEXT, BLOB) \
	U64(entry) U64(object) I64(timeout_ns) U64(caller) U32(hook) U32(ending)
/* trace(3)'s out_exited: after the exit. */
#define LORG_FIELDS_OUT_EXITED(U64, U32, I64, I32, TEXT, BLOB) U32(hook) U32(reserved)
#define LORG_FIELDS_PORT_IN(U64, U32, I64, I32, TEXT, BLOB) I32(fd) U32(generation) U32(command) U32(hook)
#define LORG_FIELDS_PORT_OUT(U64, U32, I64, I32, TEXT, BLOB) I32(fd) U32(generation) U32(command) U32(hook)
#define LORG_FIELDS_ACQUIRED(U64, U32, I64, I32, TEXT, BLOB) U64(object) U32(hook) U32(reserved)
#define LORG_FIELDS_RELEASED(U64, U32, I64, I32, TEXT, BLOB) U64(object) U32(hook) U32(reserved)
#define LORG_FIELDS_WOKE(U64, U32, I64, I32, TEXT, BLOB) U64(object) U64(count) U32(hook) U32(reserved)

/* ---- memory ------------------------------------------------------------ */

/* result 0: failed. old: what realloc was given. */
#define LORG_FIELDS_ALLOCATE(U64, U32, I64, I32, TEXT, BLOB) U64(result) U64(size) U64(old) U64(caller) U32(hook) U32(alignment)
#define LORG_FIELDS_FREE(U64, U32, I64, I32, TEXT, BLOB) U64(pointer) U32(hook) U32(reserved)
#define LORG_FIELDS_HEAP_GROWN(U64, U32, I64, I32, TEXT, BLOB) U64(words) U64(mapped_words)
/* Info of trace(3)'s garbage collection messages; in words of 8 bytes. wordsize: the need at a start, reclaimed at an end. */
#define LORG_FIELDS_GC_SIZES(U64, U32, I64, I32, TEXT, BLOB) \
	U64(bin_old_vheap_block_size) U64(bin_old_vheap_size) U64(bin_vheap_block_size) U64(bin_vheap_size) U64(heap_block_size) \
	U64(heap_size) U64(mbuf_size) U64(old_heap_block_size) U64(old_heap_size) U64(recent_size) U64(stack_size)
#define LORG_FIELDS_GC_INFO(U64, U32, I64, I32, TEXT, BLOB) LORG_FIELDS_GC_SIZES(U64, U32, I64, I32, TEXT, BLOB) U64(wordsize)

/* ---- system monitor, scheduling of runtimes ---------------------------- */

/*
 * value: ms, words, or the length of the queue (system/3). object: the port, descriptor | generation << 32, or
 * LORG_MONITOR_NO_PORT. terms: struct lorg_monitor_schedule, or lorg_monitor_heap (LONG_GC, LARGE_HEAP); none of BUSY_PORT.
 * LONG_SCHEDULE of a port, and LONG_MESSAGE_QUEUE as a port's sender sees it, have as_port. A program tells a
 * LONG_MESSAGE_QUEUE with a struct lorg_monitor_queue; what a session is told of it has value 1 or 0 and a schedule.
 */
#define LORG_FIELDS_MONITOR(U64, U32, I64, I32, TEXT, BLOB) U64(value) U64(object) BLOB(terms)
#define LORG_FIELDS_PARK(U64, U32, I64, I32, TEXT, BLOB) U64(site) U32(kind) U32(reserved)
#define LORG_FIELDS_RESUME(U64, U32, I64, I32, TEXT, BLOB) U64(site) U32(kind) U32(reserved)
/*
 * A message that has a token, of those that its flags ask to be told of: kind 1: sent on the port `object`, 2: received. serial
 * and previous: {previous, serial} of trace messages; from: who sent it; flags: of the token, as seq_trace(3) adds them up.
 */
#define LORG_FIELDS_SEQ_TRACE(U64, U32, I64, I32, TEXT, BLOB) \
	U64(entry) U64(object) U64(bytes) U32(generation) U32(kind) U32(label) U32(serial) U32(previous) U32(from_pid) U32(from_tid) \
	U32(flags) BLOB(address) BLOB(message)

/* ---- what the trace is about ------------------------------------------- */

/*
 * Changes of trace flags that the program makes. entry: the tick from which on they hold: of a new process its birth.
 * session: slot. birth and image: whose flags they are, where not those of the process in whose stream it stands; else 0.
 */
#define LORG_FIELDS_FLAGS(U64, U32, I64, I32, TEXT, BLOB) \
	U64(entry) U64(on) U64(off) U64(image_low) U64(image_high) U64(birth) U32(session) U32(tid)
#define LORG_FIELDS_PATTERN(U64, U32, I64, I32, TEXT, BLOB) U32(session) U32(kind) TEXT(pattern) TEXT(match)
/*
 * CPU time of the program (CLOCK_PROCESS_CPUTIME_ID, ns), where cpu_timestamp is on: of the event that stands right behind
 * it. at_entry: at that one's effective tick, `entry`; ns: at its stamp.
 */
#define LORG_FIELDS_CPU_TIME(U64, U32, I64, I32, TEXT, BLOB) U64(entry) U64(at_entry) U64(ns)
#define LORG_FIELDS_SESSION(U64, U32, I64, I32, TEXT, BLOB) \
	U64(id) U32(slot) U32(state) U32(overflow) U32(message_length) U32(gate_mask) U32(reserved) TEXT(name) TEXT(options)
/* The first event of an image. argv: zero-separated. */
#define LORG_FIELDS_IMAGE(U64, U32, I64, I32, TEXT, BLOB) \
	U64(parent_image_low) U64(parent_image_high) U64(entry_address) U32(birth) U32(own_pid) U32(parent_pid) U32(uid) TEXT(file) \
	BLOB(argv)
#define LORG_FIELDS_MODULE(U64, U32, I64, I32, TEXT, BLOB) U64(base) U64(start) U64(size) BLOB(build_id) TEXT(path)
#define LORG_FIELDS_MODULE_UNLOADED(U64, U32, I64, I32, TEXT, BLOB) U64(base) U64(start)
/* function: slot in the function table of the arena; address: of its code; or named by the compiler. */
#define LORG_FIELDS_FUNCTION(U64, U32, I64, I32, TEXT, BLOB) U64(address) U32(function) U32(arity) TEXT(name) TEXT(file)
/*
 * A function of a plan (plan.h), before any call of it. function: its node-wide id; offset: its entry without the load
 * bias; arity: 0xffffffff unknown; tier: 2 slots, 3 code; name: the ELF symbol, empty where there is none.
 */
#define LORG_FIELDS_HOOKED_FUNCTION(U64, U32, I64, I32, TEXT, BLOB) \
	U64(offset) U64(size) U32(function) U32(arity) U32(tier) U32(flags) TEXT(module) TEXT(name) TEXT(file) BLOB(build_id)
#define LORG_FIELDS_STRING(U64, U32, I64, I32, TEXT, BLOB) U64(id) TEXT(text)
#define LORG_FIELDS_CHANNEL(U64, U32, I64, I32, TEXT, BLOB) U64(channel) U64(key) U64(peer) U32(driver) U32(reserved)
#define LORG_FIELDS_CLOCK(U64, U32, I64, I32, TEXT, BLOB) \
	U64(base_tick) U64(base_ns) U64(multiplier) U64(frequency) I64(wall_offset_ns) U32(source) U32(reserved)
#define LORG_FIELDS_HOOK(U64, U32, I64, I32, TEXT, BLOB) U32(hook) U32(arity) U32(family) U32(flags) TEXT(name) TEXT(library)

/* ---- about the recording itself ---------------------------------------- */

#define LORG_FIELDS_DISPLAY(U64, U32, I64, I32, TEXT, BLOB) U32(session) U32(reserved) BLOB(terms)
#define LORG_FIELDS_DELIVERED(U64, U32, I64, I32, TEXT, BLOB) U64(reference)
#define LORG_FIELDS_MARK(U64, U32, I64, I32, TEXT, BLOB) TEXT(text)
#define LORG_FIELDS_LOST(U64, U32, I64, I32, TEXT, BLOB) U64(count) TEXT(why)
/* Something that could not be traced: what (an image, a name), why, how often. */
#define LORG_FIELDS_GAP(U64, U32, I64, I32, TEXT, BLOB) U64(count) U32(pid) U32(reserved) TEXT(what) TEXT(why)
/* kind 0: events, 1: events a second; of a function, which is switched off in this program (function: its id) */
#define LORG_FIELDS_LIMIT(U64, U32, I64, I32, TEXT, BLOB) U64(value) U32(session) U32(kind) U32(function) U32(reserved)
#define LORG_FIELDS_CRASH(U64, U32, I64, I32, TEXT, BLOB) U64(address) U64(pc) U32(signal) I32(code) BLOB(registers)
/* A call that never returned: written when the program died inside. */
#define LORG_FIELDS_OPEN_CALL(U64, U32, I64, I32, TEXT, BLOB) U64(entry) U64(object) U32(hook) U32(reserved)
/* kind: enum of trace2.h; terms: key and value. */
#define LORG_FIELDS_TRACE2(U64, U32, I64, I32, TEXT, BLOB) U64(time) U32(kind) U32(line) TEXT(file) BLOB(terms)
#define LORG_FIELDS_COUNTERS(U64, U32, I64, I32, TEXT, BLOB) \
	U64(words_allocated) U64(allocations) U64(frees) U64(allocation_failures) BLOB(terms)
#define LORG_FIELDS_FUNCTION_COUNTERS(U64, U32, I64, I32, TEXT, BLOB) U64(count) U64(time_ticks) U64(words) U32(function) U32(kind)

/* EVENT(id, NAME, "name in output") */
#define LORG_EVENTS(EVENT)                                         \
	EVENT(1, ENTER, "enter")                                   \
	EVENT(2, EXIT_FUNCTION, "exit_function")                   \
	EVENT(3, ENTER_LINE, "enter_line")                         \
	EVENT(4, EXIT_LINE, "exit_line")                           \
	EVENT(5, CATCH_LINE, "catch_line")                         \
	EVENT(6, CALL_ENTRY, "call_entry")                         \
	EVENT(7, RETURN, "return")                                 \
	EVENT(8, LOCK_TAKEN, "lock_taken")                         \
	EVENT(9, LOCK_GIVEN_BACK, "lock_given_back")               \
	EVENT(10, BLOCK_TAKEN, "block_taken")                      \
	EVENT(11, BLOCK_GIVEN_BACK, "block_given_back")            \
	EVENT(32, CALL, "call")                                    \
	EVENT(33, RETURN_FROM, "return_from")                      \
	EVENT(34, RETURN_TO, "return_to")                          \
	EVENT(35, EXCEPTION_FROM, "exception_from")                \
	EVENT(36, THROW, "throw")                                  \
	EVENT(37, CATCH, "catch")                                  \
	EVENT(38, ENTER_ADDRESS, "enter_address")                  \
	EVENT(39, EXIT_ADDRESS, "exit_address")                    \
	EVENT(40, CATCH_AGAIN, "catch_again")                      \
	EVENT(41, CALL_DONE, "call_done")                          \
	EVENT(48, SPAWN, "spawn")                                  \
	EVENT(49, SPAWNED, "spawned")                              \
	EVENT(50, EXEC, "exec")                                    \
	EVENT(51, EXEC_FAILED, "exec_failed")                      \
	EVENT(52, EXIT, "exit")                                    \
	EVENT(53, REAPED, "reaped")                                \
	EVENT(54, REGISTER, "register")                            \
	EVENT(55, UNREGISTER, "unregister")                        \
	EVENT(56, LINK, "link")                                    \
	EVENT(57, UNLINK, "unlink")                                \
	EVENT(58, GETTING_LINKED, "getting_linked")                \
	EVENT(59, GETTING_UNLINKED, "getting_unlinked")            \
	EVENT(64, SEND, "send")                                    \
	EVENT(65, SEND_TO_NON_EXISTING, "send_to_non_existing_process") \
	EVENT(66, RECEIVE, "receive")                              \
	EVENT(67, TIMEOUT, "timeout")                              \
	EVENT(68, SIGNAL_SENT, "signal_sent")                      \
	EVENT(69, SIGNAL_RECEIVED, "signal_received")              \
	EVENT(70, SENT, "sent")                                    \
	EVENT(71, RECEIVED, "received")                            \
	EVENT(72, OPEN, "open")                                    \
	EVENT(73, CLOSED, "closed")                                \
	EVENT(74, CONNECTED, "connected")                          \
	EVENT(75, PASSED, "passed")                                \
	EVENT(80, OUT, "out")                                      \
	EVENT(81, IN, "in")                                        \
	EVENT(82, OUT_EXITED, "out_exited")                        \
	EVENT(83, PORT_IN, "port_in")                              \
	EVENT(84, PORT_OUT, "port_out")                            \
	EVENT(85, ACQUIRED, "acquired")                            \
	EVENT(86, RELEASED, "released")                            \
	EVENT(87, WOKE, "woke")                                    \
	EVENT(88, WAITED, "waited")                                \
	EVENT(89, WAIT_OPEN, "wait_open")                          \
	EVENT(96, ALLOCATE, "allocate")                            \
	EVENT(97, FREE, "free")                                    \
	EVENT(98, HEAP_GROWN, "heap_grown")                        \
	EVENT(112, PARK, "park")                                   \
	EVENT(113, RESUME, "resume")                               \
	EVENT(114, SEQ_TRACE, "seq_trace")                         \
	EVENT(128, FLAGS, "flags")                                 \
	EVENT(129, PATTERN, "pattern")                             \
	EVENT(130, SESSION, "session")                             \
	EVENT(131, IMAGE, "image")                                 \
	EVENT(132, MODULE, "module")                               \
	EVENT(133, MODULE_UNLOADED, "module_unloaded")             \
	EVENT(134, FUNCTION, "function")                           \
	EVENT(135, STRING, "string")                               \
	EVENT(136, CHANNEL, "channel")                             \
	EVENT(137, CLOCK, "clock")                                 \
	EVENT(138, HOOK, "hook")                                   \
	EVENT(144, DISPLAY, "display")                             \
	EVENT(145, DELIVERED, "delivered")                         \
	EVENT(146, MARK, "mark")                                   \
	EVENT(147, LOST, "lost")                                   \
	EVENT(148, GAP, "gap")                                     \
	EVENT(149, LIMIT, "limit")                                 \
	EVENT(150, CRASH, "crash")                                 \
	EVENT(151, OPEN_CALL, "open_call")                         \
	EVENT(152, TRACE2, "trace2")                               \
	EVENT(153, COUNTERS, "counters")                           \
	EVENT(154, FUNCTION_COUNTERS, "function_counters")         \
	EVENT(155, HOOKED_FUNCTION, "hooked_function")             \
	EVENT(156, CPU_TIME, "cpu_time")                           \
	LORG_EVENTS_OF_ONE_SHAPE(EVENT)

/* gc and monitor events differ by id alone. */
#define LORG_FIELDS_GC_MINOR_START LORG_FIELDS_GC_INFO
#define LORG_FIELDS_GC_MINOR_END LORG_FIELDS_GC_INFO
#define LORG_FIELDS_GC_MAJOR_START LORG_FIELDS_GC_INFO
#define LORG_FIELDS_GC_MAJOR_END LORG_FIELDS_GC_INFO
#define LORG_FIELDS_GC_MAX_HEAP_SIZE LORG_FIELDS_GC_SIZES
#define LORG_FIELDS_LONG_GC LORG_FIELDS_MONITOR
#define LORG_FIELDS_LONG_MESSAGE_QUEUE LORG_FIELDS_MONITOR
#define LORG_FIELDS_LONG_SCHEDULE LORG_FIELDS_MONITOR
#define LORG_FIELDS_LARGE_HEAP LORG_FIELDS_MONITOR
#define LORG_FIELDS_BUSY_PORT LORG_FIELDS_MONITOR
#define LORG_FIELDS_BUSY_DIST_PORT LORG_FIELDS_MONITOR

#define LORG_EVENTS_OF_ONE_SHAPE(EVENT)                     \
	EVENT(99, GC_MINOR_START, "gc_minor_start")         \
	EVENT(100, GC_MINOR_END, "gc_minor_end")            \
	EVENT(101, GC_MAJOR_START, "gc_major_start")        \
	EVENT(102, GC_MAJOR_END, "gc_major_end")            \
	EVENT(103, GC_MAX_HEAP_SIZE, "gc_max_heap_size")    \
	EVENT(104, LONG_GC, "long_gc")                      \
	EVENT(105, LONG_MESSAGE_QUEUE, "long_message_queue") \
	EVENT(106, LONG_SCHEDULE, "long_schedule")          \
	EVENT(107, LARGE_HEAP, "large_heap")                \
	EVENT(108, BUSY_PORT, "busy_port")                  \
	EVENT(109, BUSY_DIST_PORT, "busy_dist_port")

#define LORG_MONITOR_NO_PORT UINT64_MAX
struct lorg_monitor_schedule {
	uint32_t in_hook, out_hook; /* UINT32_MAX: none */
	uint32_t as_port;	    /* 1: it is about the port, not about the process */
	uint32_t reserved;
	uint64_t since; /* tick at which it began to run: a stretch is told once; 0: not known */
};
/*
 * One look at a queue, right after something was put there or taken. Looks at one queue are numbered in the order in which
 * they were made, of all programs, and so are those of them that are told.
 */
struct lorg_monitor_queue {
	uint64_t most;	  /* its length before what was taken was taken */
	uint32_t channel; /* whose queue it is; 0: of `object`, as this program alone sees it */
	uint32_t number;  /* of those that are told, from 1 on; 31 bits */
	uint32_t began;	  /* the newest of them when the call began */
	uint32_t as_port;
};
enum { LORG_MONITOR_NUMBERS = 0x7fffffff };
struct lorg_monitor_heap { /* words of 8 bytes */
	uint64_t heap_size, heap_block_size, mbuf_size, stack_size, old_heap_size, old_heap_block_size;
};

enum lorg_event_id {
#define LORG_EVENT_ID(id, NAME, name) LORG_EVENT_##NAME = id,
	LORG_EVENTS(LORG_EVENT_ID)
#undef LORG_EVENT_ID
	LORG_EVENT_LAST = 160, /* ids are below this */
};

/* struct lorg_event_NAME: the fixed fields of each. */
#define LORG_C_U64(name) uint64_t name;
#define LORG_C_U32(name) uint32_t name;
#define LORG_C_I64(name) int64_t name;
#define LORG_C_I32(name) int32_t name;
#define LORG_C_BYTES(name) uint32_t name##_length;
#define LORG_EVENT_STRUCT(id, NAME, name)                                                                                  \
	struct __attribute__((packed)) lorg_event_##NAME {                                                                 \
		LORG_FIELDS_##NAME(LORG_C_U64, LORG_C_U32, LORG_C_I64, LORG_C_I32, LORG_C_BYTES, LORG_C_BYTES)             \
	};
LORG_EVENTS(LORG_EVENT_STRUCT)
#undef LORG_EVENT_STRUCT

/* PACKET(u64 or u32 or uuid, name): the CTF packet context, in the order of struct lorg_packet. */
#define LORG_PACKET_CONTEXT(TIME, U64, U32, UUID)                                                                          \
	TIME(timestamp_begin) TIME(timestamp_end) U64(content_size) U64(packet_size) U64(events_discarded) U64(packet_seq_num) \
	U64(earliest) UUID(image) U64(process_birth) U32(pid) U32(tid) U32(runtime_process) U32(session) U64(writer_last)     \
	U32(writer_position) U32(writer_process) U32(writer_chunk) U32(own_tid)

#endif
