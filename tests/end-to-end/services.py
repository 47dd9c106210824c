#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The units of scripts/systemd under a service manager of one's own: socket activation, reload, restart, a kill, stop."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

from daemon import Client, LORGD, attached, handle_of, program
from lorgtest import ROOT, check, equal, finish, skip

UNITS = os.path.join(ROOT, "scripts", "systemd")
RUNTIME = "/run/user/%d" % os.geteuid()
GROUP = "/sys/fs/cgroup/systemd/lorg-test-%d"


def reason_against():
    """Why no service manager of one's own can be started here; None: it can."""
    for tool in ("systemctl", "unshare", "mount"):
        if not shutil.which(tool):
            return "%s is missing" % tool
    if not os.path.exists("/usr/lib/systemd/systemd") and not os.path.exists("/lib/systemd/systemd"):
        return "systemd is missing"
    if os.path.isdir("/run/systemd/system"):
        return "systemd runs here already: its own services are left alone"
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        return "a mount namespace of one's own is refused"
    return None


def systemctl(*arguments):
    done = subprocess.run(["systemctl", "--user", "--no-pager", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60, check=False)
    return done.returncode, (done.stdout + done.stderr).strip()


def shown(unit, *properties):
    lines = systemctl("show", unit, *["--property=" + name for name in properties])[1].splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def install_units():
    folder = os.path.join(RUNTIME, "systemd", "user")
    os.makedirs(folder)
    with open(os.path.join(UNITS, "lorgd.service.in"), encoding="ascii") as source:
        text = source.read().replace("@bindir@/lorgd", LORGD)
    with open(os.path.join(folder, "lorgd.service"), "w", encoding="ascii") as unit:
        unit.write(text)
    shutil.copy(os.path.join(UNITS, "lorgd.socket"), folder)


def start_manager():
    """In a group of processes of its own: what else runs on the machine is none of its business."""
    group = GROUP % os.getpid()
    if os.path.isdir("/sys/fs/cgroup/systemd"):
        os.makedirs(group, exist_ok=True)
    command = ["/lib/systemd/systemd", "--user", "--log-target=null"]
    if os.path.isdir(group):
        command = ["/bin/sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', group, *command]
    manager = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while time.monotonic() < until and manager.poll() is None:
        if systemctl("is-system-running")[1] in ("running", "degraded", "starting"):
            return manager
        time.sleep(0.1)
    manager.kill()
    return None


def until_it_answers(directory, limit=20):
    until = time.monotonic() + limit
    while time.monotonic() < until:
        try:
            client = Client(directory)
            if client.hello:
                return client
        except OSError:
            pass
        time.sleep(0.02)
    return None


def main_pid():
    return int(shown("lorgd.service", "MainPID")["MainPID"])


def is_as_before(name, directory, kept, worker):
    client = until_it_answers(directory)
    check("services/%s-answers" % name, client is not None)
    if not client:
        return None
    equal("services/%s-session" % name, client.ask("{session_info,all}"), "[%s]" % kept)
    check("services/%s-program" % name, attached(client, worker.pid))
    return client


def follow_units():
    directory = os.path.join(RUNTIME, "lorg")
    equal("services/units-are-right", systemctl("daemon-reload")[0], 0)
    equal("services/socket-starts", systemctl("start", "lorgd.socket"), (0, ""))
    equal("services/nothing-runs-yet", shown("lorgd.service", "ActiveState")["ActiveState"], "inactive")
    client = until_it_answers(directory)
    check("services/socket-activation", client is not None)
    state = shown("lorgd.service", "ActiveState", "SubState", "StatusText", "Type", "WatchdogUSec")
    equal("services/it-says-that-it-is-ready", (state["ActiveState"], state["SubState"]), ("active", "running"))
    check("services/it-says-what-it-does", state["StatusText"], state)
    worker = program(directory, ["sleep", "300"])
    check("services/program-attaches", attached(client, worker.pid))
    kept = handle_of(client.ask("{session_create,kept,client,[persist]}"))
    client.ask("{session_create,gone,client,[]}")
    before = main_pid()

    equal("services/reload", systemctl("reload", "lorgd.service")[0], 0)
    is_as_before("reload", directory, kept, worker)
    until = time.monotonic() + 10
    while shown("lorgd.service", "ActiveState")["ActiveState"] != "active" and time.monotonic() < until:
        time.sleep(0.1)
    state = shown("lorgd.service", "ActiveState", "MainPID", "NRestarts")
    equal("services/reload-is-the-same-process", state, {"ActiveState": "active", "MainPID": str(before), "NRestarts": "0"})

    equal("services/restart", systemctl("restart", "lorgd.service"), (0, ""))
    check("services/restart-is-another-process", main_pid() not in (0, before))
    is_as_before("restart", directory, kept, worker)

    os.kill(main_pid(), signal.SIGKILL)
    is_as_before("killed", directory, kept, worker)
    equal("services/killed-is-started-anew", shown("lorgd.service", "NRestarts")["NRestarts"], "1")

    equal("services/stop", systemctl("stop", "lorgd.service")[0], 0)
    equal("services/stopped-well", shown("lorgd.service", "ActiveState", "Result"), {"ActiveState": "inactive", "Result": "success"})
    check("services/program-goes-on", worker.poll() is None)
    # The socket is still there: whoever asks starts it again.
    is_as_before("asked-again", directory, kept, worker)

    # One that hangs is noticed.
    os.makedirs(os.path.join(RUNTIME, "systemd/user/lorgd.service.d"))
    with open(os.path.join(RUNTIME, "systemd/user/lorgd.service.d/watch.conf"), "w", encoding="ascii") as drop:
        drop.write("[Service]\nWatchdogSec=2\nWatchdogSignal=SIGKILL\n")
    systemctl("daemon-reload")
    systemctl("restart", "lorgd.service")
    client = is_as_before("watched", directory, kept, worker)
    time.sleep(4)
    running = main_pid()
    check("services/watched-lives", client and client.ask("{session_info,all}") == "[%s]" % kept)
    os.kill(running, signal.SIGSTOP)
    until = time.monotonic() + 20
    while main_pid() in (0, running) and time.monotonic() < until:
        time.sleep(0.2)
    check("services/hung-is-started-anew", main_pid() not in (0, running))
    is_as_before("hung", directory, kept, worker)
    systemctl("stop", "lorgd.socket", "lorgd.service")
    worker.kill()
    worker.wait()


def inside():
    """In a mount namespace of its own, where /run is empty."""
    for folder in ("/run/systemd/system", RUNTIME):
        os.makedirs(folder, mode=0o700)
    os.environ["XDG_RUNTIME_DIR"] = RUNTIME
    os.environ.pop("LORG_RUNTIME_DIRECTORY", None)
    os.environ.pop("DBUS_SESSION_BUS_ADDRESS", None)
    install_units()
    manager = start_manager()
    if not manager:
        skip("services", "a service manager of one's own does not start here")
        finish()
    try:
        follow_units()
    finally:
        end_keepers()
        manager.terminate()
        try:
            manager.wait(timeout=20)
        except subprocess.TimeoutExpired:
            manager.kill()
            manager.wait()
    finish()


def end_keepers():
    """What waits for the next lorgd of this directory ends with it."""
    shutil.rmtree(os.path.join(RUNTIME, "lorg"), ignore_errors=True)
    time.sleep(1)


def main():
    why = reason_against()
    if not os.path.exists(LORGD):
        why = "lorgd is not built"
    if why:
        skip("services", why)
        finish()
    script = 'mount -t tmpfs tmpfs /run && exec "$0" "$1" inside'
    done = subprocess.run(["unshare", "-m", "/bin/sh", "-c", script, sys.executable, os.path.abspath(__file__)], stdin=subprocess.DEVNULL,
                          check=False)
    for name in os.listdir("/sys/fs/cgroup/systemd") if os.path.isdir("/sys/fs/cgroup/systemd") else []:
        if re.fullmatch(r"lorg-test-\d+", name):
            subprocess.run(["find", "/sys/fs/cgroup/systemd/" + name, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"],
                           stderr=subprocess.DEVNULL, check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    if sys.argv[1:] == ["inside"]:
        inside()
    main()
