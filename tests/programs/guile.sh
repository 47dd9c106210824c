# SPDX-License-Identifier: MIT
# guile: threads, pipes to children, a socket pair of its own, a fork.
if [ "$1" = setup ]; then
	command -v guile >/dev/null || exit 77
	cat >work.scm <<'END'
(use-modules (ice-9 threads) (ice-9 popen) (ice-9 rdelim) (srfi srfi-1))
(display (apply + (par-map (lambda (n) (* n n)) (iota 50))))
(newline)
(define threads (map (lambda (n) (call-with-new-thread (lambda () (fold + 0 (iota (* 1000 n)))))) (iota 5)))
(display (map join-thread threads))
(newline)
(let* ((port (open-input-pipe "echo from a child; exit 3")) (line (read-line port)))
  (display line)
  (display (status:exit-val (close-pipe port)))
  (newline))
(let* ((ends (socketpair AF_UNIX SOCK_STREAM 0)))
  (display "through a socket\n" (car ends))
  (force-output (car ends))
  (display (read-line (cdr ends)))
  (newline))
(exit 4)
END
	exit 0
fi
exec guile --no-auto-compile work.scm
