// SPDX-License-Identifier: MIT OR Apache-2.0

//! Programs with the library preloaded.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A tree as `iwarp run --sysfs` makes it, and the library beside it: a test that shared the file
/// would have it written anew by another test's process while its own program starts.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("preload-{name}"));
        let _ = fs::remove_dir_all(&root);
        let device = root.join("sys/class/infiniband/test0");
        fs::create_dir_all(&device).expect("a directory for the test");
        fs::write(device.join("node_type"), "4: RNIC\n").expect("a file");
        symlink("node_type", device.join("link")).expect("a link");
        fs::create_dir_all(root.join("dev/infiniband")).expect("a directory");
        symlink("/dev/null", root.join("dev/infiniband/uverbs0")).expect("a link");
        let tree = Self(root);
        fs::write(tree.library(), iwarp_preload::PRELOAD).expect("a file for the test");
        tree
    }

    fn library(&self) -> PathBuf {
        self.0.join("libiwarp-preload.so")
    }

    /// A command that has the library and the tree.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", self.library()).env("IWARP_SYSFS", &self.0).env("LC_ALL", "C");
        command
    }

    /// A program compiled from C.
    fn compiled(&self, name: &str, text: &str) -> PathBuf {
        let (program, source) = (self.0.join(name), self.0.join(format!("{name}.c")));
        fs::write(&source, text).expect("a file");
        let cc = Command::new("cc").arg("-O2").arg("-o").arg(&program).arg(&source).status();
        assert!(cc.expect("a C compiler: apt-get install gcc libc6-dev").success());
        program
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        self.command(program).args(arguments).output().expect("the program runs")
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_ways_to_look_at_a_file_find_the_tree() {
    let tree = Tree::new("ways");
    let file = "/sys/class/infiniband/test0/node_type";
    assert_eq!(text(&tree.run("cat", &[file])), "4: RNIC\n");
    assert_eq!(text(&tree.run("stat", &["-c", "%s", file])), "8\n");
    assert_eq!(text(&tree.run("ls", &["/sys/class/infiniband"])), "test0\n");
    assert!(tree.run("test", &["-r", file]).status.success());
    let link = "/sys/class/infiniband/test0/link";
    assert_eq!(text(&tree.run("readlink", &[link])), "node_type\n");
    let device = tree.run("stat", &["-L", "-c", "%F", "/dev/infiniband/uverbs0"]);
    assert_eq!(text(&device), "character special file\n");
}

#[test]
fn the_files_in_sys_are_read_only_and_devices_are_not() {
    let tree = Tree::new("written");
    let folder = "/sys/class/infiniband/test0";
    for script in ["echo a > $f/node_type", "echo a >> $f/node_type", "echo a <> $f/new"] {
        let output = tree.run("sh", &["-c", &format!("f={folder}; {script}")]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("Read-only"), "{script}: {said}");
    }
    assert_eq!(text(&tree.run("cat", &[&format!("{folder}/node_type")])), "4: RNIC\n");
    let device = tree.run("sh", &["-c", "echo a > /dev/infiniband/uverbs0"]);
    assert!(device.status.success());
}

#[test]
fn the_c_functions_find_the_tree() {
    let tree = Tree::new("c");
    let program = tree.compiled("program", PROGRAM);
    let output = tree.command(program.to_str().expect("UTF-8")).output().expect("it runs");
    assert_eq!(text(&output), "ok\n", "{}", String::from_utf8_lossy(&output.stderr));
}

/// Each function on a file in the tree, on one that is not there, and on one elsewhere.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define IN "/sys/class/infiniband/test0/node_type"
#define LINK "/sys/class/infiniband/test0/link"
#define OUT "/sys/class/infiniband/test0/nothing"
#define ELSEWHERE "/proc/self/exe"

#define CHECK(what, bad) do { \
    errno = 0; if ((what) == (bad)) { perror(#what); return 1; } } while (0)
#define ABSENT(what, bad) do { \
    errno = 0; if ((what) != (bad) || errno != ENOENT) { perror(#what); return 1; } } while (0)
#define ALL(f, path, ...) f(path, __VA_ARGS__)

int main(int argc, char **argv) {
    struct stat s;
    struct statx x;
    char buffer[4096];
    int creating = O_CREAT | O_RDWR;
    CHECK(open(IN, O_RDONLY), -1);
    CHECK(open64(IN, O_RDONLY), -1);
    CHECK(openat(AT_FDCWD, IN, O_RDONLY), -1);
    CHECK(fopen(IN, "r"), NULL);
    CHECK(opendir("/sys/class/infiniband/test0"), NULL);
    CHECK(stat(IN, &s), -1);
    CHECK(lstat(LINK, &s), -1);
    if (!S_ISLNK(s.st_mode)) { fprintf(stderr, "lstat followed the link\n"); return 1; }
    CHECK(fstatat(AT_FDCWD, IN, &s, 0), -1);
    CHECK(statx(AT_FDCWD, IN, 0, STATX_SIZE, &x), -1);
    CHECK(access(IN, R_OK), -1);
    CHECK(faccessat(AT_FDCWD, IN, R_OK, 0), -1);
    CHECK(readlink(LINK, buffer, sizeof buffer), -1);
    CHECK(readlinkat(AT_FDCWD, LINK, buffer, sizeof buffer), -1);
    CHECK(realpath(IN, buffer), NULL);
    struct dirent **names;
    CHECK(scandir("/sys/class/infiniband/test0", &names, NULL, alphasort), -1);
    glob_t found = { 0 };
    if (glob("/sys/class/infiniband/*/node_t*", 0, NULL, &found) || found.gl_pathc != 1 ||
        strcmp(found.gl_pathv[0], IN)) { fprintf(stderr, "glob\n"); return 1; }
    globfree(&found);
    if (getxattr(IN, "user.none", buffer, 1) != -1 || errno == ENOENT) { perror("getxattr"); return 1; }
    CHECK(chdir("/sys/class/infiniband"), -1);
    CHECK(access("test0/node_type", R_OK), -1);

    ABSENT(open(OUT, O_RDONLY), -1);
    ABSENT(fopen(OUT, "r"), NULL);
    ABSENT(opendir(OUT), NULL);
    ABSENT(stat(OUT, &s), -1);
    ABSENT(access(OUT, R_OK), -1);
    ABSENT(readlink(OUT, buffer, sizeof buffer), -1);
    ABSENT(realpath(OUT, buffer), NULL);
    ABSENT(stat("/sys/class/infiniband_other", &s), -1);

    CHECK(open(ELSEWHERE, O_RDONLY), -1);
    CHECK(stat(ELSEWHERE, &s), -1);
    CHECK(realpath(ELSEWHERE, buffer), NULL);
    if (strcmp(strrchr(buffer, '/'), "/program")) { fprintf(stderr, "%s\n", buffer); return 1; }

    // The mode of a new file is passed on.
    umask(0);
    snprintf(buffer, sizeof buffer, "%s/new", getenv("IWARP_SYSFS"));
    CHECK(open(buffer, creating, 0640), -1);
    CHECK(stat(buffer, &s), -1);
    if ((s.st_mode & 07777) != 0640) { fprintf(stderr, "mode %o\n", s.st_mode); return 1; }

    // Longer than any path may be, by itself or only in the tree.
    static char path[8192];
    for (size_t length = 3900; length < 8000; length += 100) {
        memset(path, 'x', length);
        path[length] = 0;
        memcpy(path, "/sys/class/infiniband/", 22);
        errno = 0;
        if (stat(path, &s) != -1 || errno != ENAMETOOLONG) { perror("long path"); return 1; }
    }
    puts("ok");
    return 0;
}
"#;

/// The sum of files, divided, when it is opened; in any way, by any path.
#[test]
fn a_counter_is_computed_when_it_is_opened() {
    let tree = Tree::new("counters");
    let counters = "test0/ports/1/counters";
    let shown = tree.0.join("sys/class/infiniband").join(counters);
    let lists = tree.0.join("counted").join(counters);
    for folder in [&shown, &lists] {
        fs::create_dir_all(folder).expect("a directory");
    }
    let [first, second] = ["first", "second"].map(|name| tree.0.join(name));
    let list = format!("4\n{}\n/no/such/file\n{}\n", first.display(), second.display());
    fs::write(lists.join("port_rcv_data"), list).expect("a file");
    for counter in ["port_rcv_data", "port_rcv_errors"] {
        fs::write(shown.join(counter), "0\n").expect("a file");
    }
    let file = format!("/sys/class/infiniband/{counters}/port_rcv_data");
    let largest = u64::MAX.to_string();
    for (a, b, sum) in
        [("10\n", "31\n", "10\n"), ("0\n", "3", "0\n"), (&largest, "0\n", "4611686018427387903\n")]
    {
        fs::write(&first, a).expect("a file");
        fs::write(&second, b).expect("a file");
        assert_eq!(text(&tree.run("cat", &[&file])), sum);
        // A stream instead of a descriptor.
        let read = format!("getline line < \"{file}\"; print line");
        assert_eq!(text(&tree.run("awk", &[&format!("BEGIN {{ {read} }}")])), sum);
    }
    // From its folder, around corners, from a folder that is open, by the tree's own path.
    let folder = format!("/sys/class/infiniband/{counters}");
    let own = shown.join("port_rcv_data").display().to_string();
    let twice = format!("{folder}//port_rcv_data");
    let link = tree.0.with_extension("link");
    let _ = fs::remove_file(&link);
    symlink(&tree.0, &link).expect("a link");
    for (from, path) in [
        (&*folder, "port_rcv_data"),
        (&folder, "../counters/./port_rcv_data"),
        ("/sys/class/infiniband", "test0/ports/1/counters/port_rcv_data"),
        ("/", &twice),
        ("/", &own),
    ] {
        // open(2), fopen(3), and openat(2) by which grep walks through a folder.
        let script = "cd $0 && cat $1 && awk 'BEGIN { getline < ARGV[1]; print }' $1 && \
            (cd $2 && grep -r -h 46 .) && (echo 1 > $1) 2>&1 | grep -o Read-only";
        for place in [&tree.0, &link] {
            let mut command = tree.command("sh");
            command.env("IWARP_SYSFS", place).args(["-c", script, from, path, &folder]);
            let output = command.output().expect("the shell runs");
            let sum = "4611686018427387903\n";
            let expected = format!("{sum}{sum}{sum}Read-only\n");
            assert_eq!(text(&output), expected, "{from} {path}: {output:?}");
        }
    }
    fs::remove_file(&link).expect("it is there");
    let list = lists.join("port_rcv_data").display().to_string();
    assert!(text(&tree.run("cat", &[&list])).starts_with("4\n/"));
    // The counts of all processes.
    let words = [5_u64, 7, 1 << 40];
    let octets: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    fs::write(tree.0.join("counted/words"), octets).expect("a file");
    for (line, sum) in [("@8", "7\n"), ("@16\n@0", "1099511627781\n"), ("@24", "0\n")] {
        fs::write(lists.join("port_rcv_data"), format!("1\n{line}\n")).expect("a file");
        assert_eq!(text(&tree.run("cat", &[&file])), sum);
    }
    let other = format!("/sys/class/infiniband/{counters}/port_rcv_errors");
    assert_eq!(text(&tree.run("cat", &[&other])), "0\n");
    // It cannot be written to.
    let write = tree.run("sh", &["-c", &format!("echo 7 > {file}")]);
    assert!(!write.status.success());
    assert_eq!(fs::read_to_string(shown.join("port_rcv_data")).expect("it is there"), "0\n");
}

/// Sockets for RDMA's netlink are answered, in all ways that programs use them; others are not.
#[test]
fn requests_by_netlink_are_answered() {
    let tree = Tree::new("netlink");
    let counted = tree.0.join("counted");
    let list = counted.join("test0/ports/1/hw_counters");
    fs::create_dir_all(&list).expect("a directory");
    let device = "tx_bytes\ntest0 roce 1 0.1.0 a b c 1 lo\n";
    fs::write(counted.join("devices"), device).expect("a file");
    fs::write(list.join("tx_bytes"), "1\n@8\n").expect("a file");
    let words: Vec<u8> = [5_u64, 7].iter().flat_map(|word| word.to_ne_bytes()).collect();
    fs::write(counted.join("words"), words).expect("a file");
    let program = tree.compiled("netlink", NETLINK);
    let output = tree.command(program.to_str().expect("UTF-8")).output().expect("it runs");
    assert_eq!(text(&output), "ok\n", "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
}

const NETLINK: &str = r#"
#include <errno.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK(what) do { errno = 0; \
    if (!(what)) { fprintf(stderr, "line %d: %s: %m\n", __LINE__, #what); return 1; } } while (0)

static const struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
static char octets[8192];
static struct nlmsghdr *answer = (void *)octets;

/* RDMA_NLDEV_CMD_GET or _STAT_GET of device 0 and its port 1. */
static struct { struct nlmsghdr header; struct { __u16 length, kind; __u32 value; } numbers[2]; }
one = { { 32, 5 << 10 | 1, NLM_F_REQUEST, 1, 0 }, { { 8, 1, 0 }, { 8, 3, 1 } } };

/* Whether it is the answer, for this port. */
static int is_right(ssize_t length, __u32 port) {
    return length > 0 && answer->nlmsg_len == length && answer->nlmsg_type == (5 << 10 | 1) &&
        answer->nlmsg_seq == 1 && answer->nlmsg_pid == port && !strcmp(octets + 28, "test0");
}

int main(void) {
    struct sockaddr_nl own = kernel, from;
    socklen_t size = sizeof own;
    int fd, yes = 1, other;
    CHECK((fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA)) >= 0);
    CHECK(!setsockopt(fd, SOL_NETLINK, NETLINK_EXT_ACK, &yes, sizeof yes));
    CHECK(!bind(fd, (void *)&own, sizeof own));
    CHECK(!getsockname(fd, (void *)&own, &size));
    CHECK(size == sizeof own && own.nl_family == AF_NETLINK && own.nl_pid);
    struct pollfd ready = { fd, POLLIN };
    CHECK(poll(&ready, 1, 0) == 0);

    CHECK(sendto(fd, &one, 32, 0, (void *)&kernel, sizeof kernel) == 32);
    CHECK(poll(&ready, 1, 0) == 1);
    /* The length first, as libnl and UCX ask for it. */
    ssize_t length = recv(fd, NULL, 0, MSG_PEEK | MSG_TRUNC);
    struct iovec to = { octets, sizeof octets };
    struct msghdr message = { &from, sizeof from, &to, 1 };
    CHECK(recvmsg(fd, &message, 0) == length && is_right(length, own.nl_pid));
    CHECK(message.msg_namelen == sizeof from && from.nl_family == AF_NETLINK && !from.nl_pid);
    CHECK(recv(fd, octets, sizeof octets, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    /* Nobody else can answer. */
    CHECK((other = socket(AF_NETLINK, SOCK_RAW, NETLINK_USERSOCK)) >= 0);
    CHECK(sendto(other, &one, 32, 0, (void *)&own, sizeof own) < 0 && errno == ECONNREFUSED);
    close(other);

    struct iovec parts[2] = { { &one, 16 }, { one.numbers, 16 } };
    struct msghdr request = { (void *)&kernel, sizeof kernel, parts, 2 };
    memset(octets, 0, sizeof octets);
    CHECK(sendmsg(fd, &request, MSG_DONTWAIT) == 32);
    size = sizeof from;
    from.nl_pid = 1;
    length = recvfrom(fd, octets, sizeof octets, 0, (void *)&from, &size);
    CHECK(is_right(length, own.nl_pid) && size == sizeof from && !from.nl_pid);

    /* Connected to the kernel. */
    CHECK(!connect(fd, (void *)&kernel, sizeof kernel));
    CHECK(send(fd, &one, 32, 0) == 32);
    CHECK(is_right(recv(fd, octets, sizeof octets, 0), own.nl_pid));

    /* A counter; the acknowledgement is another datagram. */
    one.header.nlmsg_type = 5 << 10 | 17;
    one.header.nlmsg_flags |= NLM_F_ACK;
    CHECK(send(fd, &one, 32, 0) == 32);
    CHECK((length = recv(fd, octets, sizeof octets, 0)) > 40);
    __u64 value;
    memcpy(&value, octets + length - 8, 8);
    CHECK(value == 7 && !strcmp(octets + length - 24, "tx_bytes"));
    CHECK(recv(fd, octets, sizeof octets, 0) > 16 && answer->nlmsg_type == NLMSG_ERROR);
    CHECK(((struct nlmsgerr *)NLMSG_DATA(answer))->error == 0);
    one.header.nlmsg_type = 5 << 10 | 1;
    one.header.nlmsg_flags = NLM_F_REQUEST;

    /* Longer than any request. */
    static char much[5000];
    CHECK(send(fd, much, sizeof much, 0) < 0 && errno == EMSGSIZE);
    /* More than the socket has room for, as nobody takes it. */
    int sent = 0;
    while (sent < 100000 && send(fd, &one, 32, 0) == 32) sent++;
    CHECK(sent > 10 && sent < 100000);
    CHECK(send(fd, &one, 32, 0) < 0 && errno == ENOBUFS);

    /* Another socket that has the number then. */
    close(fd);
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    size = sizeof here;
    CHECK((other = socket(AF_INET, SOCK_DGRAM, 0)) == fd);
    CHECK(!bind(other, (void *)&here, sizeof here));
    CHECK(!getsockname(other, (void *)&here, &size));
    CHECK(sendto(other, "ping", 4, 0, (void *)&here, size) == 4);
    size = sizeof here;
    CHECK(recvfrom(other, octets, 8, 0, (void *)&here, &size) == 4 && !memcmp(octets, "ping", 4));

    /* One that is not bound, beside it and beside the kernel's own. */
    CHECK(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE) >= 0);
    for (int i = 0; i < 40; i++) {
        CHECK((fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA)) >= 0);
        CHECK(sendto(fd, &one, 32, 0, (void *)&kernel, sizeof kernel) == 32);
        CHECK((length = recv(fd, octets, sizeof octets, 0)) > 0);
        CHECK(is_right(length, answer->nlmsg_pid) && answer->nlmsg_pid);
        if (i % 2) close(fd);
    }
    CHECK(sendto(-1, &one, 32, 0, (void *)&kernel, sizeof kernel) < 0 && errno == EBADF);
    puts("ok");
    return 0;
}
"#;

#[test]
fn without_a_tree_nothing_changes() {
    let tree = Tree::new("none");
    for value in [None, Some(""), Some("relative")] {
        let mut command = tree.command("cat");
        command.env_remove("IWARP_SYSFS").envs(value.map(|value| ("IWARP_SYSFS", value)));
        let output = command.arg("/sys/class/infiniband/test0/node_type").output();
        let output = output.expect("the program runs");
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains("No such file"));
    }
}

/// Programs of several kinds run as ever: shells, and one that starts others.
#[test]
fn ordinary_programs_are_not_disturbed() {
    let tree = Tree::new("ordinary");
    let output =
        tree.run("sh", &["-c", "find /usr/bin -name 'tru*' -exec ls {} + | sort | head -1"]);
    assert_eq!(text(&output), "/usr/bin/true\n", "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty());
}
