/* SPDX-License-Identifier: MIT */
/*
 * reap.c: REAPED, the edge from the end of a child or thread to whoever waited
 * for it.
 */
#include "preload/hooks/reap.h"

#include <sys/wait.h>

#include "preload/hooks/spawn.h"

enum { STATUS_UNKNOWN = -1 /* not told; no status of wait(2) has this value */ };

static int status_at(uintptr_t address)
{
	int status;
	/* The kernel has just written there, as the call succeeded. */
	if (!address)
		return STATUS_UNKNOWN;
	memcpy(&status, (const void *)address, sizeof status);
	return status;
}

static void write_reaped(struct hook_call *call, uint32_t pid, uint32_t tid, int status)
{
	EVENT_WRITE(call->self, REAPED, .since = call->entry, .hook = call->hook->shown_as, .pid = pid, .tid = tid, .status = status);
}

/* wait, wait3: status first; waitpid, wait4: status second. */
static void reap_by_status(struct hook_call *call, intptr_t pid, unsigned at)
{
	if (pid <= 0)
		return;
	int status = status_at(call->argument[at]);
	if (status != STATUS_UNKNOWN && (WIFSTOPPED(status) || WIFCONTINUED(status)))
		return;
	write_reaped(call, (uint32_t)pid, 0, status);
}

/* What waitid tells, in the words of wait(2). */
static int status_of(const siginfo_t *information)
{
	if (information->si_code == CLD_EXITED)
		return (information->si_status & 0xff) << 8;
	return (information->si_status & 0x7f) | (information->si_code == CLD_DUMPED ? 0x80 : 0);
}

/* waitid(kind, pid, information, options) */
static void reap_by_information(struct hook_call *call, intptr_t result)
{
	const siginfo_t *information = (const siginfo_t *)call->argument[2];
	if (result != 0 || ((int)call->argument[3] & WNOWAIT) || !((int)call->argument[3] & WEXITED))
		return;
	if (!information) {
		if ((idtype_t)call->argument[0] == P_PID && !((int)call->argument[3] & WNOHANG))
			write_reaped(call, (uint32_t)call->argument[1], 0, STATUS_UNKNOWN);
		return;
	}
	int code = information->si_code;
	if (!information->si_pid || (code != CLD_EXITED && code != CLD_KILLED && code != CLD_DUMPED))
		return;
	write_reaped(call, (uint32_t)information->si_pid, 0, status_of(information));
}

static void reap_stream(struct hook_call *call, intptr_t status)
{
	uint32_t pid = popen_forget((int)call->argument[0]);
	if (status == -1 || !pid)
		return;
	write_reaped(call, pid, 0, (int)status);
}

static void reap_thread(struct hook_call *call, intptr_t result)
{
	uint32_t index;
	if (result != 0)
		return;
	uint32_t tid = thread_of_handle(call->argument[0], &index);
	if (tid)
		write_reaped(call, program_own_pid(), tid, 0);
}

void reap_leave(struct hook_call *call, intptr_t result)
{
	if (!(call->gate & LORG_GATE_PROCESS))
		return;
	if (call->hook->role == ROLE_join) {
		reap_thread(call, result);
		return;
	}
	switch (call->hook->shown_as) {
	case HOOK_wait:
	case HOOK_wait3:
	case HOOK___wait:
		reap_by_status(call, result, 0);
		break;
	case HOOK_waitpid:
	case HOOK_wait4:
	case HOOK___waitpid:
		reap_by_status(call, result, 1);
		break;
	case HOOK_waitid:
		reap_by_information(call, result);
		break;
	case HOOK_pclose:
		reap_stream(call, result);
		break;
	default:
		break;
	}
}
