/* SPDX-License-Identifier: MIT */
/* special.c: see special.h. Names without the underscores that libraries put before their own variants. */
#include "collector/plan/special.h"

#include <stddef.h>
#include <string.h>

static const char returns_twice[] = "it returns more than once";
static const char looks_at_caller[] = "it looks at its return address";
static const char stack_start[] = "its caller's frame is not what it seems";
static const char leaves_frames[] = "it looks at the frames below it, and may leave them";

static const struct {
	const char *name, *why;
} entry_only[] = {
	{"setjmp", returns_twice},	{"sigsetjmp", returns_twice},	   {"getcontext", returns_twice},
	{"swapcontext", returns_twice}, {"vfork", returns_twice},	   {"libc_vfork", returns_twice},
	{"clone", returns_twice},	{"clone3", returns_twice},	   {"clone_internal", returns_twice},
	{"dlsym", looks_at_caller},	{"dlvsym", looks_at_caller},	   {"dlopen", looks_at_caller},
	{"dlmopen", looks_at_caller},	{"libc_dlsym", looks_at_caller},   {"libc_dlopen_mode", looks_at_caller},
	{"fentry__", looks_at_caller},	{"mcount", looks_at_caller},	
	{"backtrace", leaves_frames},	{"morestack", stack_start},	   {"morestack_non_split", stack_start},
	{"restore_rt", stack_start},	{"start", stack_start},		   {"start_thread", stack_start},
	{"start_context", stack_start}, {"x86_return_thunk", stack_start}, {"Unwind_RaiseException", leaves_frames},
	{"Unwind_Resume", leaves_frames}, {"Unwind_Resume_or_Rethrow", leaves_frames}, {"Unwind_ForcedUnwind", leaves_frames},
	{"Unwind_Backtrace", leaves_frames}, {"builtin_eh_return", leaves_frames}, {"unw_getcontext", returns_twice},
	{"Ux86_64_getcontext", returns_twice},
};

static const char *const no_return[] = {
	"exit", "_exit", "_Exit", "quick_exit", "abort", "longjmp", "_longjmp", "siglongjmp", "__longjmp_chk", "pthread_exit", "thrd_exit",
	"__assert_fail", "__assert_perror_fail", "__stack_chk_fail", "__fortify_fail", "__chk_fail", "setcontext", "err", "errx", "verr",
	"verrx", "__cxa_throw", "__cxa_rethrow", "__cxa_bad_cast", "__cxa_bad_typeid", "_ZSt9terminatev", "_ZSt10unexpectedv",
	"__libc_fatal", "__libc_start_call_main",
};

const char *special_entry_only(const char *name)
{
	const char *plain = name + strspn(name, "_");
	/* start is a usual name; only the one with underscores is where programs begin. */
	if (strcmp(plain, "start") == 0 && plain == name)
		return NULL;
	if (strncmp(plain, "x86_indirect_thunk", 18) == 0 || strncmp(plain, "llvm_retpoline", 14) == 0 || strncmp(plain, "x86.get_pc_thunk", 16) == 0)
		return stack_start;
	for (size_t i = 0; i < sizeof entry_only / sizeof *entry_only; i++)
		if (strcmp(plain, entry_only[i].name) == 0)
			return entry_only[i].why;
	return NULL;
}

/*
 * Virtual machines that make code of their own, and look for the frames of that code by the return addresses of the
 * functions that it calls: they know none but their own.
 */
static const char *const machines[] = {"_ZN2v88internal", "_ZN2js3jit", "_ZN3JSC"};
static const char *const machine_sonames[] = {"libjvm.so", "libcoreclr.so", "libmonosgen-2.0.so", "libguile", "libruby"};

const char *special_machine(const char *name, const char *soname)
{
	static const char why[] = "it belongs to a virtual machine that looks at the return addresses of its functions";
	for (size_t i = 0; name && i < sizeof machines / sizeof *machines; i++)
		if (strncmp(name, machines[i], strlen(machines[i])) == 0)
			return why;
	for (size_t i = 0; soname && i < sizeof machine_sonames / sizeof *machine_sonames; i++)
		if (strncmp(soname, machine_sonames[i], strlen(machine_sonames[i])) == 0)
			return why;
	return NULL;
}

int special_no_return(const char *name)
{
	for (size_t i = 0; i < sizeof no_return / sizeof *no_return; i++)
		if (strcmp(name, no_return[i]) == 0)
			return 1;
	return 0;
}

int special_profiler(const char *name)
{
	return strcmp(name, "__fentry__") == 0 || strcmp(name, "mcount") == 0 || strcmp(name, "_mcount") == 0;
}
