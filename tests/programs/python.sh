# SPDX-License-Identifier: MIT
# python3: threads, subprocesses, a socket server, multiprocessing's fork server of pipes.
if [ "$1" = setup ]; then
	cat >work.py <<'END'
import multiprocessing
import os
import queue
import socketserver
import socket
import subprocess
import sys
import threading


class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line.upper())


def client(address, n, results):
    with socket.create_connection(address) as connection, connection.makefile("rwb") as stream:
        for i in range(50):
            stream.write(b"line %d of %d\n" % (i, n))
            stream.flush()
            assert stream.readline() == b"LINE %d OF %d\n" % (i, n)
    results.put(n)


def square(n):
    return n * n


if __name__ == "__main__":
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        results = queue.Queue()
        clients = [threading.Thread(target=client, args=(server.server_address, n, results)) for n in range(6)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
        server.shutdown()
    print("clients", sum(results.get() for _ in clients))
    print(subprocess.run(["sort", "-r"], input=b"a\nc\nb\n", stdout=subprocess.PIPE).stdout)
    print(subprocess.check_output("echo shell; exit 0", shell=True))
    print([subprocess.call(["sh", "-c", "exit %d" % n]) for n in range(3)])
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(square, range(20)))
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.write(write_end, b"x" * 30000)
        os._exit(7)
    os.close(write_end)
    total = 0
    while chunk := os.read(read_end, 4096):
        total += len(chunk)
    print(total, os.waitstatus_to_exitcode(os.wait()[1]))
    sys.exit(3)
END
	exit 0
fi
exec /usr/bin/python3 work.py
