/* SPDX-License-Identifier: MIT */
/* A second libc in a link-map namespace of its own, which no preload reaches, used beside the first. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(void)
{
	int good = 0, ends[2];
	void *handles[3];

	for (int i = 0; i < 3; i++) {
		handles[i] = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
		if (!handles[i]) {
			fprintf(stderr, "no second namespace: %s\n", dlerror());
			return 77;
		}
		ssize_t (*own_write)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))dlsym(handles[i], "write");
		ssize_t (*own_read)(int, void *, size_t) = (ssize_t(*)(int, void *, size_t))dlsym(handles[i], "read");
		int (*own_pipe)(int *) = (int (*)(int *))dlsym(handles[i], "pipe");
		void *(*own_malloc)(size_t) = (void *(*)(size_t))dlsym(handles[i], "malloc");
		void (*own_free)(void *) = (void (*)(void *))dlsym(handles[i], "free");
		char got[4] = "";
		if (own_pipe(ends))
			return 1;
		good += own_write(ends[1], "abc", 3) == 3 && read(ends[0], got, 3) == 3 && strcmp(got, "abc") == 0;
		good += write(ends[1], "def", 3) == 3 && own_read(ends[0], got, 3) == 3 && strcmp(got, "def") == 0;
		void *block = own_malloc(1000);
		good += block != NULL;
		own_free(block);
		close(ends[0]);
		close(ends[1]);
	}
	printf("good %d\n", good);
	return 0;
}
