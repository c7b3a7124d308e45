// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp run --shared-heap`: `malloc` and its kin keep their promises, in threads and in forked
//! children, for blocks of either kind.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{command, stderr, stdout};

/// Loads the drop-in library, from which on large blocks are shared, and then does what programs
/// do with memory. It says at what line it found something wrong.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) \
    do { if (!(what)) { printf("line %d: %s\n", __LINE__, #what); exit(1); } } while (0)

static int is_shared(void *block) {
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx", &from, &to) == 2 && (uintptr_t)block >= from &&
            (uintptr_t)block < to)
            found = strstr(line, "memfd:iwarp-memory") != NULL;
    }
    fclose(maps);
    return found;
}

static void fill(unsigned char *block, size_t len, unsigned seed) {
    for (size_t at = 0; at < len; at += 509) block[at] = (unsigned char)(seed + at / 509);
    block[len - 1] = (unsigned char)seed;
}

static int holds(unsigned char *block, size_t len, unsigned seed) {
    for (size_t at = 0; at < len - 1; at += 509)
        if (block[at] != (unsigned char)(seed + at / 509)) return 0;
    return 1;
}

static void *churn(void *argument) {
    unsigned seed = (unsigned)(uintptr_t)argument;
    unsigned char *blocks[16] = {0};
    size_t lens[16] = {0};
    for (int round = 0; round < 3000; round++) {
        unsigned random = rand_r(&seed), slot = random % 16;
        size_t len = 1 + random / 16 % (random % 3 ? 9000 : 300000);
        if (blocks[slot]) CHECK(holds(blocks[slot], lens[slot], slot));
        if (random % 7 == 0) {
            free(blocks[slot]);
            blocks[slot] = NULL;
            continue;
        }
        if (blocks[slot] && random % 2) {
            size_t kept = len < lens[slot] ? len : lens[slot];
            blocks[slot] = realloc(blocks[slot], len);
            CHECK(kept == 1 || holds(blocks[slot], kept, slot));
        } else {
            free(blocks[slot]);
            blocks[slot] = random % 5 ? malloc(len) : memalign(4096, len);
        }
        CHECK(blocks[slot]);
        fill(blocks[slot], lens[slot] = len, slot);
    }
    for (int slot = 0; slot < 16; slot++) free(blocks[slot]);
    return NULL;
}

int main(int argc, char **argv) {
    unsigned char *early = malloc(1 << 20);
    CHECK(!is_shared(early));
    fill(early, 1 << 20, 1);
    CHECK(dlopen("libibverbs.so.1", RTLD_NOW));

    unsigned char *small = malloc(1000), *large = malloc(1 << 20), *aligned = NULL;
    CHECK(!is_shared(small) && is_shared(large) && (uintptr_t)large % 16 == 0);
    CHECK(posix_memalign((void **)&aligned, 4096, 8192) == 0);
    CHECK(is_shared(aligned) && (uintptr_t)aligned % 4096 == 0);
    CHECK(malloc_usable_size(large) >= 1 << 20 && malloc_usable_size(aligned) >= 8192);
    CHECK(malloc_usable_size(small) >= 1000);
    void *others[] = {memalign(1 << 21, 1 << 20), aligned_alloc(64, 1 << 16), valloc(100000),
                      pvalloc(100000), calloc(1000, 100), reallocarray(NULL, 1000, 100)};
    for (int at = 0; at < 6; at++) CHECK(others[at] && is_shared(others[at]));
    CHECK((uintptr_t)others[0] % (1 << 21) == 0 && (uintptr_t)others[2] % 4096 == 0);
    for (int at = 0; at < 6; at++) free(others[at]);

    errno = 7;
    void *none = NULL;
    CHECK(posix_memalign(&none, 3, 1 << 20) == EINVAL && !none);
    volatile size_t huge = SIZE_MAX / 2;
    errno = 0;
    CHECK(!reallocarray(large, huge, 4) && errno == ENOMEM);
    CHECK(!calloc(huge, 4) && !malloc(huge) && !memalign(4096, huge));
    errno = 7;
    free(malloc(1 << 20));
    CHECK(errno == 7);

    for (int round = 0; round < 20; round++) {
        unsigned char *zeros = calloc(1, 200000);
        for (int at = 0; at < 200000; at++) CHECK(zeros[at] == 0);
        memset(zeros, 0xee, 200000);
        free(zeros);
    }

    fill(large, 1 << 20, 2);
    CHECK((large = realloc(large, 3 << 20)) && holds(large, 1 << 20, 2));
    CHECK((large = realloc(large, 100)) && holds(large, 100, 2) && !is_shared(large));
    CHECK((large = realloc(large, 1 << 20)) && holds(large, 100, 2));
    CHECK((early = realloc(early, 2 << 20)) && holds(early, 1 << 20, 1));
    free(early);

    fill(aligned, 8192, 3);
    unsigned char *untouched = calloc(1, 1 << 20);
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        // The parent stores meanwhile.
        char word;
        CHECK(read(ends[0], &word, 1) == 1);
        CHECK(is_shared(untouched) == 0 && untouched[500000] == 0);
        CHECK(holds(aligned, 8192, 3));
        fill(aligned, 8192, 4);
        unsigned char *own = malloc(1 << 20);
        CHECK(is_shared(own));
        fill(own, 1 << 20, 5);
        CHECK((aligned = realloc(aligned, 1 << 20)) && holds(aligned, 8192, 4));
        free(aligned);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            CHECK(holds(own, 1 << 20, 5));
            free(own);
            churn((void *)9);
            _exit(0);
        }
        int status = 1;
        CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
        CHECK(holds(own, 1 << 20, 5));
        free(own);
        _exit(0);
    }
    fill(aligned, 8192, 6);
    untouched[500000] = 1;
    CHECK(write(ends[1], "!", 1) == 1);
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(holds(aligned, 8192, 6));

    pthread_t threads[4];
    for (uintptr_t at = 0; at < 4; at++) pthread_create(&threads[at], NULL, churn, (void *)at);
    // Children of a process whose threads allocate.
    for (int round = 0; round < 10; round++) {
        child = fork();
        if (child == 0) {
            churn((void *)7);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    for (int at = 0; at < 4; at++) pthread_join(threads[at], NULL);
    free(aligned);
    free(small);
    free(large);
    if (argc == 1) {
        // A program that is started anew.
        execv(argv[0], (char *[]){argv[0], "again", NULL});
        return 1;
    }
    puts("all is well");
    return 0;
}
"#;

fn compiled() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (directory.join("shared-heap.c"), directory.join("shared-heap"));
    std::fs::write(&source, PROGRAM).expect("a file");
    let mut cc = Command::new("cc");
    // The compiler would leave blocks out that it knows to be of no use.
    cc.args(["-O1", "-fno-builtin", "-pthread", "-o"]).arg(&program).arg(&source);
    let status = cc.status().expect("a C compiler: apt-get install gcc libc6-dev");
    assert!(status.success());
    program
}

#[test]
fn programs_that_allocate_in_all_ways_find_what_they_stored() {
    let output = command(&["run", "--shared-heap"]).arg(compiled()).output().unwrap();
    assert_eq!((stdout(&output).trim(), output.status.code()), ("all is well", Some(0)));
}

#[test]
fn a_host_path_without_memory_is_refused() {
    for local in ["off", "rings"] {
        let mut run = command(&["run", "--shared-heap", "true"]);
        let output = run.env("IWARP_LOCAL", local).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        let said = stderr(&output);
        assert!(
            said.contains(&format!("IWARP_LOCAL={local}")) && said.contains("unset it"),
            "{said}"
        );
    }
}
