/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Calls every function that is only there to fail. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include "check.h"

enum kind { INT, MINUS, PTR, VOID };

static const struct {
	const char *name, *version;
	enum kind kind;
} stubs[] = {
TABLE
};

int main(void)
{
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW);
	void *cm = dlopen("librdmacm.so.1", RTLD_NOW);

	CHECK(verbs && cm);
	for (size_t i = 0; i < sizeof(stubs) / sizeof(*stubs); i++) {
		void *found = dlvsym(verbs, stubs[i].name, stubs[i].version);

		if (!found)
			found = dlvsym(cm, stubs[i].name, stubs[i].version);
		if (!found)
			fprintf(stderr, "%s@%s\n", stubs[i].name, stubs[i].version);
		CHECK(found);
		errno = 0;
		switch (stubs[i].kind) {
		case INT:
			CHECK(((int (*)(void *, int))found)(NULL, 0) == EOPNOTSUPP);
			break;
		case MINUS:
			CHECK(((int (*)(void *, int))found)(NULL, 0) == -1);
			break;
		case PTR:
			CHECK(!((void *(*)(void *, int))found)(NULL, 0));
			break;
		case VOID:
			((void (*)(void *, int))found)(NULL, 0);
			break;
		}
		CHECK(errno == (stubs[i].kind == VOID ? 0 : EOPNOTSUPP));
	}
	return 0;
}
