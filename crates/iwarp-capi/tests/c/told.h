/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A thread that frees a program which the checker has told to wait for ever. For programs that include
 * the checks. */
#include <pthread.h>

/* Standard error is a pipe, of which a thread waits for a word. */
static int told_pipe[2], told_errors;
static const char *told_word;
static void (*told_then)(void);

static void *wait_until_told(void *unused)
{
	static char text[1 << 14];
	size_t length = 0;
	ssize_t got;

	do {
		got = read(told_pipe[0], text + length, sizeof text - 1 - length);
		CHECK(got > 0 && write(told_errors, text + length, got) == got);
		text[length += got] = 0;
	} while (!strstr(text, told_word));
	told_then();
	return unused;
}

/* Once the checker has told a word, a thread frees a program that waits for ever. */
static pthread_t once_told(const char *word, void (*then)(void))
{
	pthread_t thread;

	told_word = word;
	told_then = then;
	told_errors = dup(2);
	CHECK(told_errors >= 0 && pipe(told_pipe) == 0 && dup2(told_pipe[1], 2) == 2);
	CHECK(pthread_create(&thread, NULL, wait_until_told, NULL) == 0);
	return thread;
}
