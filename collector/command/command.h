/* SPDX-License-Identifier: MIT */
/* command.h: the commands of lorg. Each takes its own name as argv[0] and returns the exit status. */
#ifndef LORG_COMMAND_COMMAND_H
#define LORG_COMMAND_COMMAND_H

#include <argp.h>

/* calls: what options that ask for functions need (calls.h); NULL: then they make it return RUN_NEEDS_CALLS at once. */
struct run_calls;
enum { RUN_NEEDS_CALLS = -1 };
int command_run(int argc, char **argv, const struct run_calls *calls);
int command_functions(int argc, char **argv);
int command_log(int argc, char **argv);
int command_report(int argc, char **argv);
int command_matchspec(int argc, char **argv);
int command_attach(int argc, char **argv);
int command_detach(int argc, char **argv);
/* Those that speak with a running lorgd. */
int command_session(int argc, char **argv);
int command_tail(int argc, char **argv);
int command_ps(int argc, char **argv);
int command_calls(int argc, char **argv);
int command_process(int argc, char **argv);
int command_port(int argc, char **argv);
int command_function(int argc, char **argv);
int command_send(int argc, char **argv);
int command_recv(int argc, char **argv);
int command_system(int argc, char **argv);
int command_info(int argc, char **argv);
int command_delivered(int argc, char **argv);
/* Tracers of sessions that lorgd starts; not for people. */
int command_tracer_text(int argc, char **argv);
int command_tracer_module(int argc, char **argv);

/*
 * argp_parse with the one form of errors: what is wrong with the options is said by lorg_error, and the process
 * ends with status 2. Options end at the first argument.
 */
void command_parse(const struct argp *argp, int argc, char **argv, void *input);

#endif
