// SPDX-License-Identifier: MIT OR Apache-2.0

//! The libraries export exactly what the lists say, and everything that Debian's do. Linkers drop
//! versions without a word, so this is looked at in the built files.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::{built, exports, tool};

/// The names and versions of a list, `name@@VERSION`.
fn listed(file: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

fn exported(library: &str) -> BTreeSet<String> {
    exports(&built().join(library)).into_iter().collect()
}

fn assert_same(ours: &BTreeSet<String>, expected: &BTreeSet<String>) {
    let missing: Vec<_> = expected.difference(ours).collect();
    let added: Vec<_> = ours.difference(expected).collect();
    assert!(missing.is_empty() && added.is_empty(), "missing: {missing:?}, added: {added:?}");
}

#[test]
fn librdmacm_exports_its_list() {
    assert_same(&exported("librdmacm.so"), &listed("rdmacm/exports.txt"));
}

#[test]
fn libibverbs_exports_its_list_and_what_librdmacm_jumps_to() {
    let mut expected = listed("ibverbs/exports.txt");
    for symbol in listed("rdmacm/exports.txt") {
        let name = symbol.split('@').next().unwrap();
        expected.insert(format!("iwcm_{name}@@IWARP_PRIVATE_1"));
    }
    assert_same(&exported("libibverbs.so"), &expected);
}

/// The exports of the system's own library of that name.
fn original(library: &str) -> BTreeSet<String> {
    let folder = tool("cc", "gcc", &["-print-multiarch"]);
    let path = Path::new("/usr/lib").join(folder.trim()).join(library);
    assert!(path.exists(), "{} is missing: apt-get install libibverbs1 librdmacm1", path.display());
    exports(&path).into_iter().collect()
}

#[test]
fn all_exports_of_debian_are_exported() {
    for (name, own) in [("libibverbs.so.1", "libibverbs.so"), ("librdmacm.so.1", "librdmacm.so")] {
        let (theirs, ours) = (original(name), exported(own));
        let missing: Vec<_> = theirs.difference(&ours).collect();
        assert!(missing.is_empty(), "{name}: {missing:?}");
        assert!(theirs.len() > 60, "{name}: {}", theirs.len());
    }
}

#[test]
fn names_and_flags_are_those_of_the_originals() {
    for library in ["libibverbs", "librdmacm"] {
        let path = built().join(format!("{library}.so"));
        let dynamic = tool("readelf", "binutils", &["-d", path.to_str().unwrap()]);
        assert!(dynamic.contains(&format!("soname: [{library}.so.1]")), "{dynamic}");
        assert!(dynamic.contains("NODELETE"), "{dynamic}");
    }
    let path = built().join("librdmacm.so");
    let dynamic = tool("readelf", "binutils", &["-d", path.to_str().unwrap()]);
    assert!(dynamic.contains("Shared library: [libibverbs.so.1]"), "{dynamic}");
}
