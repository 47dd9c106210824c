# SPDX-License-Identifier: MIT
# node: a server and clients on one loop, children, worker threads, a thread pool.
if [ "$1" = setup ]; then
	command -v node >/dev/null || exit 77
	cat >work.js <<'END'
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const { execFileSync, spawn } = require('child_process');
const crypto = require('crypto');
const net = require('net');

if (!isMainThread) {
  parentPort.postMessage(workerData * 2);
} else {
  const server = net.createServer((socket) => socket.on('data', (data) => socket.write(data.toString().toUpperCase())));
  server.listen(0, '127.0.0.1', async () => {
    const answers = await Promise.all([1, 2, 3].map((n) => new Promise((resolve) => {
      const client = net.connect(server.address().port, '127.0.0.1', () => client.write(`client ${n}`));
      client.on('data', (data) => { client.end(); resolve(data.toString()); });
    })));
    console.log(answers.join(', '));
    server.close();
    console.log(execFileSync('echo', ['from a child']).toString().trim());
    const child = spawn('sort', ['-r']);
    let sorted = '';
    child.stdout.on('data', (data) => { sorted += data; });
    const ended = new Promise((resolve) => child.on('close', resolve));
    child.stdin.end('a\nc\nb\n');
    console.log(await ended, sorted.split('\n').join(' '));
    const workers = [10, 20].map((n) => new Promise((resolve) => new Worker(__filename, { workerData: n }).on('message', resolve)));
    console.log(await Promise.all(workers));
    const key = await new Promise((resolve) => crypto.pbkdf2('a', 'b', 1000, 8, 'sha256', (e, k) => resolve(k)));
    console.log(key.toString('hex'));
    process.exitCode = 5;
  });
}
END
	exit 0
fi
exec node work.js
