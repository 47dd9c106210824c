#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Match specifications on messages: which sends and receives of a program whose every message is known are told."""

import os
import shutil
import subprocess

import lorgtest as t

PROGRAM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void handler(int signal) { (void)signal; }

int main(void)
{
	int pipes[2], pair[2];
	char text[64], *large = NULL;
	static char bytes[40000], got[40000];
	(void)large;
	pipe(pipes);
	for (int i = 0; i < 10; i++) {
		int length = snprintf(text, sizeof text, "message %d", i);
		write(pipes[1], text, (size_t)length);
		read(pipes[0], text, sizeof text);
	}
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	struct iovec pieces[3] = {{"in ", 3}, {"", 0}, {"pieces", 6}};
	writev(pair[0], pieces, 3);
	struct iovec room[2] = {{text, 4}, {text + 4, 60}};
	readv(pair[1], room, 2);
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (char)(i % 251);
	send(pair[0], bytes, 30000, 0);
	recv(pair[1], got, sizeof got, MSG_WAITALL & 0);
	send(pair[0], bytes, 40000, 0);
	for (size_t done = 0; done < 40000;)
		done += (size_t)read(pair[1], got, sizeof got);
	struct sigaction action = {.sa_handler = handler, .sa_flags = 0};
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	kill(getpid(), SIGTERM);
	raise(SIGUSR1);
	struct pollfd none = {.fd = pipes[0], .events = POLLIN};
	poll(&none, 1, 0);
	signal(SIGPIPE, SIG_IGN);
	close(pipes[0]);
	write(pipes[1], "to nobody", 9);
	close(pair[0]);
	read(pair[1], text, sizeof text);
	puts("done");
	return 0;
}
"""

BUILT = os.path.join(t.SCRATCH, "messages")
with open(BUILT + ".c", "w") as source:
    source.write(PROGRAM)
subprocess.run([shutil.which("cc") or "gcc", "-g", "-O1", "-w", "-o", BUILT, BUILT + ".c"], check=True)


def record(name, *options):
    run = t.Run([BUILT], options=options)
    if not t.check(name + ": the program runs as ever", run.status == 0 and run.stdout == b"done\n", run.why()):
        return run, []
    return run, t.log(run.directory)


def of(events, tag):
    return [e for e in events if e["tag"] == tag]


def texts(events, tag):
    return [e["msg"] for e in of(events, tag) if isinstance(e.get("msg"), str)]


run, plain = record("without a specification")
total = {tag: len(of(plain, tag)) for tag in ("send", "receive", "signal")}

run, events = record("send by its bytes", "--send-match", "[{['_',<<\"message 3\">>],[],[]},{['_','$1'],[{'==',{byte_size,'$1'},9},{'>=','$1',<<\"message 8\">>}],[]}]")
t.equal("send by its bytes", [m for m in texts(events, "send") if m.startswith("message")], ["message 3", "message 8", "message 9"])
t.equal("receives are not touched", len(of(events, "receive")), total["receive"])

run, events = record("receive by its bytes", "--receive-match", "[{['_','_',<<\"message 5\">>],[],[]}]")
t.equal("receive by its bytes", texts(events, "receive"), ["message 5"])
t.equal("sends are not touched", len(of(events, "send")), total["send"])
cause = of(events, "receive")[0].get("cause") if of(events, "receive") else None
sent = [e["hlc"] for e in of(events, "send") if e.get("msg") == "message 5"]
t.equal("what is left out counts in the channel: the cause is right", cause, sent)

run, events = record("pieces", "--send-match", "[{['_',<<\"in pieces\">>],[],[]}]", "--receive-match", "[{['_','_',<<\"in pieces\">>],[],[]}]")
t.equal("pieces are put together", (texts(events, "send"), texts(events, "receive")), (["in pieces"], ["in pieces"]))

run, events = record("large", "--send-match", "[{['_','$1'],[{'==',{byte_size,'$1'},30000},{'==',{binary_part,'$1',29998,2},<<129,130>>}],[]}]")
t.equal("a message is seen whole, beyond what an event keeps", [e["bytes"] for e in of(events, "send")], [30000])
run, events = record("largest", "--send-match", "[{['_','$1'],[{'==',{byte_size,'$1'},32768}],[]}]")
t.equal("of a larger one its first 32 KiB", [e["bytes"] for e in of(events, "send")], [40000])

run, events = record("who", "--send-match", "[{['$1',<<\"message 0\">>],[{is_port,'$1'}],[{message,{{'$1',{self},{node,'$1'}}}}]}]",
                     "--receive-match", "[{['$1','$2',<<\"message 0\">>],[{'==','$1',{node}},{is_port,'$2'}],[{message,['$2']}]}]")
send, receive = of(events, "send"), of(events, "receive")
pid = send[0]["program"] if send else 0
t.check("Receiver is the port", len(send) == 1 and send[0]["message"][0].startswith("#Port<%d.%d" % (pid, send[0]["fd"])) and
        send[0]["message"][2].startswith("lorg-"), send)
t.check("Sender is the port that it came by", len(receive) == 1 and receive[0]["message"][0].startswith("#Port<%d.%d" % (pid, receive[0]["fd"])), receive)
status, said, error = t.lorg("log", "--format", "erlang", run.directory)
t.check("Erlang's form: the value comes last", b",{#Port<" in said and b"@" in said, said[-300:])

run, events = record("eof and time-outs", "--receive-match", "[{['_','_',eof],[],[]},{['_',undefined,timeout],[],[]}]")
t.equal("eof and time-outs", sorted("eof" if e.get("eof") else "timeout" if e.get("timeout") else "other" for e in of(events, "receive")), ["eof", "timeout"])

run, events = record("signals", "--send-match", "[{['$1',{signal,sigterm}],[{is_pid,'$1'}],[{message,sent}]}]",
                     "--receive-match", "[{['_','$1',{signal,sigusr1}],[],[{message,{{from,'$1'}}}]}]")
signals = of(events, "signal")
t.equal("signals: which", [(e["signal"], "to" in e) for e in signals], [("SIGTERM", True), ("SIGUSR1", False)])
t.check("signals: what is added", len(signals) == 2 and signals[0]["message"] == "sent" and signals[1]["message"][0] == "from", signals)

run, events = record("to nobody", "--send-match", "[{['_',<<\"to nobody\">>],[],[{message,gone}]}]")
t.equal("send_to_non_existing_process", [e.get("message") for e in of(events, "send_to_non_existing_process")], ["gone"])

run, events = record("nothing passes", "--send-match", "[]" if False else "[{['_',nothing],[],[]}]", "--receive-match", "[{['_','_',nothing],[],[]}]")
t.equal("nothing passes: waits and ports are told as ever",
        (len(of(events, "send")), len(of(events, "receive")), len(of(events, "signal")), len(of(events, "in"))), (0, 0, 0, len(of(plain, "in"))))

run, events = record("silent from a send", "--kinds", "procs,send", "--call", "messages:main", "--send-match",
                     "[{['_',<<\"message 2\">>],[],[{disable_trace,send}]},{'_',[],[]}]")
t.equal("a specification switches its own kind off", texts(events, "send"), ["message 0", "message 1"] + (["message 2"] if "message 2" in texts(events, "send") else []))

for name, option, specification, word in (
        ("send: caller", "--send-match", "[{'_',[],[{message,{caller}}]}]", "caller"),
        ("receive: silent", "--receive-match", "[{'_',[],[{silent,true}]}]", "silent"),
        ("receive: process_dump", "--receive-match", "[{'_',[],[{process_dump}]}]", "process_dump"),
        ("receive: is_seq_trace", "--receive-match", "[{'_',[{is_seq_trace}],[]}]", "is_seq_trace"),
        ("receive: trace", "--receive-match", "[{'_',[],[{trace,[],[]}]}]", "trace"),
        ("send: broken text", "--send-match", "[{['_'", "match specification")):
    marker = os.path.join(t.SCRATCH, "ran")
    run = t.Run(["touch", marker], options=[option, specification])
    lines = run.stderr.strip().splitlines()
    t.check("refused: " + name, run.status == 2 and len(lines) == 1 and ": 1:" in lines[0] and word in lines[0] and not os.path.exists(marker), run.why())

t.finish()
