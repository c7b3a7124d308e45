// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp run`: programs that bring copies of the libraries along, as Python's wheels do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{command, stderr, stdout};

/// The names that tools which bundle libraries give to their copies.
const VERBS: &str = "libibverbs-1a2b3c4d.so.1.14.48.0";
const CM: &str = "librdmacm-5e6f7a8b.so.1.3.48.0";
const DRIVER: &str = "libmlx5-9c0d1e2f.so.1.24.48.0";

/// Stands for a copy of libibverbs, or of librdmacm: it says that it is one.
const COPY: &str = r#"
#ifdef VERBS
static void *devices[] = { devices, 0 };
void **ibv_get_device_list(int *count) { *count = 1; return devices; }
const char *ibv_get_device_name(void *device) { (void)device; return "copy"; }
void verbs_register_driver_34(const void *driver) { (void)driver; }
#else
const char *rdma_event_str(int event) { (void)event; return "copy"; }
#endif
"#;

/// The versions that rdma-core gives these names.
const VERBS_VERSIONS: &str = "
IBVERBS_1.0 { local: *; };
IBVERBS_1.1 { global: ibv_get_device_list; ibv_get_device_name; } IBVERBS_1.0;
IBVERBS_PRIVATE_34 { global: verbs_register_driver_34; };
";
const CM_VERSIONS: &str = "RDMACM_1.0 { global: rdma_event_str; local: *; };";

/// Stands for the extension module of a wheel.
const MODULE: &str = r#"
void **ibv_get_device_list(int *count);
const char *ibv_get_device_name(void *device);
const char *rdma_event_str(int event);
const char *device(void) {
    int count = 0;
    void **list = ibv_get_device_list(&count);
    return count ? ibv_get_device_name(list[0]) : "none";
}
const char *event(void) { return rdma_event_str(0); }
"#;

/// Stands for a driver, which reports itself when it is loaded.
const DRIVER_SOURCE: &str = r#"
void verbs_register_driver_34(const void *driver);
__attribute__((constructor)) static void report(void) { verbs_register_driver_34(0); }
"#;

/// Opens what it is given, as Python opens modules, and prints the device and the library that it
/// found.
const OPENER: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        void *module = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        if (!module) { printf("%s\n", dlerror()); return 1; }
        const char *(*device)(void) = (const char *(*)(void))dlsym(module, "device");
        const char *(*event)(void) = (const char *(*)(void))dlsym(module, "event");
        if (device && event) { printf("%s %s\n", device(), event()); continue; }
        const char *(*name)(int) = (const char *(*)(int))dlsym(module, "rdma_event_str");
        void **(*list)(int *) = (void **(*)(int *))dlsym(module, "ibv_get_device_list");
        int count;
        if (list) printf("list %s\n", list(&count)[1] ? "of more" : "of one");
        if (name) printf("event %s\n", name(0));
    }
    return 0;
}
"#;

/// Linked to the copies itself.
const LINKED: &str = r#"
#include <stdio.h>
const char *device(void);
const char *event(void);
int main(void) { printf("%s %s\n", device(), event()); return 0; }
"#;

/// A wheel: `module.so`, `module.libs/` with copies of the libraries, and programs.
struct Wheel(PathBuf);

impl Wheel {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bundled-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("module.libs")).expect("a directory for the test");
        let wheel = Self(path);
        for (file, text) in [
            ("copy.c", COPY),
            ("module.c", MODULE),
            ("driver.c", DRIVER_SOURCE),
            ("opener.c", OPENER),
            ("linked.c", LINKED),
            ("verbs.map", VERBS_VERSIONS),
            ("cm.map", CM_VERSIONS),
        ] {
            fs::write(wheel.0.join(file), text).expect("a file");
        }
        for copy in [VERBS, CM] {
            wheel.copy(copy);
        }
        let driver = format!("module.libs/{DRIVER}");
        let soname = format!("-Wl,-soname,{DRIVER},-rpath,$ORIGIN");
        let verbs = format!("module.libs/{VERBS}");
        wheel.cc(&["-shared", "-fPIC", &soname, "driver.c", &verbs, "-o", &driver]);
        wheel.cc(&["opener.c", "-o", "opener"]);
        wheel
    }

    fn copy(&self, name: &str) {
        let (kind, map) =
            if name.contains("verbs") { ("-DVERBS", "verbs.map") } else { ("-DCM", "cm.map") };
        let soname = format!("-Wl,-soname,{name},--version-script,{map}");
        let file = format!("module.libs/{name}");
        self.cc(&["-shared", "-fPIC", kind, &soname, "copy.c", "-o", &file]);
    }

    /// A module that looks for its copies before LD_LIBRARY_PATH, or behind it.
    fn module(&self, file: &str, before: bool, needed: &[&str]) -> PathBuf {
        let tags = if before { "--disable-new-dtags" } else { "--enable-new-dtags" };
        let path = format!("-Wl,{tags},-rpath,$ORIGIN/module.libs,--no-as-needed");
        let needed: Vec<_> = needed.iter().map(|name| format!("module.libs/{name}")).collect();
        let mut arguments = vec!["-shared", "-fPIC", &path, "module.c", "-o", file];
        arguments.extend(needed.iter().map(String::as_str));
        self.cc(&arguments);
        self.0.join(file)
    }

    fn cc(&self, arguments: &[&str]) {
        let status = Command::new("cc").args(arguments).current_dir(&self.0).status();
        let found = status.expect("a C compiler: apt-get install gcc libc6-dev");
        assert!(found.success(), "cc {arguments:?}");
    }

    /// The output about these of the program that opens modules.
    fn open(&self, options: &[&str], modules: &[&Path]) -> String {
        let output = command(&["run"])
            .args(options)
            .arg("--")
            .arg(self.0.join("opener"))
            .args(modules)
            .output()
            .expect("the command runs");
        stdout(&output) + &stderr(&output)
    }
}

impl Drop for Wheel {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const OURS: &str = "roce0 RDMA_CM_EVENT_ADDR_RESOLVED\n";
const COPIES: &str = "copy copy\n";

#[test]
fn a_module_gets_the_libraries_in_the_place_of_its_copies() {
    let wheel = Wheel::new("module");
    for before in [true, false] {
        let module = wheel.module("module.so", before, &[VERBS, CM]);
        assert_eq!(wheel.open(&["--bundled=on"], &[&module]), OURS);
        assert_eq!(wheel.open(&["--bundled=off"], &[&module]), COPIES);
    }
}

/// Two wheels in one process: the second name is one of a library that is there already.
#[test]
fn copies_of_several_names_are_one_library() {
    let wheel = Wheel::new("names");
    let (verbs, cm) = ("libibverbs-0000ffff.so.1.8.22.4", "librdmacm-ffff0000.so.1.2.22.4");
    wheel.copy(verbs);
    wheel.copy(cm);
    let first = wheel.module("first.so", true, &[VERBS, CM]);
    let second = wheel.module("second.so", true, &[verbs, cm]);
    let found = wheel.open(&["--bundled=on"], &[&first, &second]);
    assert_eq!(found, OURS.repeat(2));
}

#[test]
fn a_copy_that_is_opened_by_its_path_is_replaced() {
    let wheel = Wheel::new("path");
    let [verbs, cm] = [VERBS, CM].map(|name| wheel.0.join("module.libs").join(name));
    let found = wheel.open(&["--bundled=on"], &[&verbs, &cm, Path::new("libibverbs.so.1")]);
    // The second one needs the first.
    let list = "list of one\n";
    assert_eq!(found, format!("{list}{list}event RDMA_CM_EVENT_ADDR_RESOLVED\n{list}"));
    // A module that needs it by its name afterwards finds it, too.
    let module = wheel.module("module.so", true, &[VERBS, CM]);
    assert!(wheel.open(&["--bundled=on"], &[&verbs, &cm, &module]).ends_with(OURS));
}

#[test]
fn a_bundled_driver_loads() {
    let wheel = Wheel::new("driver");
    let module = wheel.module("module.so", true, &[DRIVER, VERBS, CM]);
    assert_eq!(wheel.open(&["--bundled=on"], &[&module]), OURS);
}

#[test]
fn programs_that_are_linked_to_copies_or_started_later_get_the_libraries() {
    let wheel = Wheel::new("linked");
    wheel.module("libmodule.so", true, &[VERBS, CM]);
    let paths = "-Wl,--disable-new-dtags,-rpath,$ORIGIN:$ORIGIN/module.libs";
    wheel.cc(&["linked.c", "libmodule.so", paths, "-o", "linked"]);
    let program = wheel.0.join("linked");
    let started = |options: &[&str], program: &[&str]| {
        let output = command(&["run"]).args(options).arg("--").args(program).output();
        let output = output.expect("the command runs");
        stdout(&output) + &stderr(&output)
    };
    let program = program.to_str().expect("a path of this project");
    assert_eq!(started(&["--bundled=on"], &[program]), OURS);
    assert_eq!(started(&["--bundled=on"], &["sh", "-c", &format!("{program}; :")]), OURS);
    assert_eq!(started(&["--bundled=off"], &["sh", "-c", &format!("{program}; :")]), COPIES);
}
