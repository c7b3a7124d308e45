// SPDX-License-Identifier: MIT OR Apache-2.0

//! Each refusal says why.

use std::collections::HashMap;
use std::path::Path;

use crate::support;

fn mistakes(name: &str, env: &[(&str, &str)]) -> HashMap<String, String> {
    let source = support::with_headers(include_str!("../c/mistakes.c"));
    let said = support::run(name, &source, env);
    let parts = said.split("-- ").filter_map(|part| part.split_once('\n'));
    parts.map(|(name, said)| (name.to_owned(), said.to_owned())).collect()
}

/// Of each, all words stand in its line.
const LINES: [(&str, &[&str]); 32] = [
    ("cqe", &["ibv_create_cq: ", "cqe is 0", "at least 1", "(EINVAL)"]),
    ("vector", &["ibv_create_cq: comp_vector is 12345, of "]),
    ("port", &["ibv_query_port: port_num is 7; the only port is 1 (EINVAL)"]),
    ("send depth", &["ibv_create_qp: max_send_wr is 1073741824; the device has "]),
    ("elements of a queue", &["ibv_create_qp: max_recv_sge is 4000; the device has "]),
    ("type", &["ibv_create_qp: no raw packet queue pairs", "(EOPNOTSUPP)"]),
    ("vendor's type", &["IBV_QPT_DRIVER: DC of mlx5dv, SRD of efadv", "UCX_TLS=rc,ud"]),
    ("rights", &["ibv_reg_mr: ", "need IBV_ACCESS_LOCAL_WRITE"]),
    ("unknown rights", &["ibv_reg_mr: unknown access flags: 0x80000000"]),
    ("memory", &["ibv_reg_mr: ", "not mapped", "(EFAULT)"]),
    ("srq", &["ibv_create_srq: max_wr is 0"]),
    ("notify", &["ibv_req_notify_cq: ", "without a channel"]),
    ("no step", &["ibv_modify_qp: ", "does not go from RESET to RTS", "INIT, RTR"]),
    ("missing", &["from RESET to INIT the mask needs IBV_QP_ACCESS_FLAGS, IBV_QP_PORT too"]),
    ("other port", &["ibv_modify_qp: port_num is 2; it can be 1 to 1"]),
    ("too early", &["ibv_post_send: queue pair ", " is in INIT; sending needs RTS"]),
    ("missing of RTR", &["from INIT to RTR the mask needs IBV_QP_RQ_PSN too"]),
    ("GID", &["ibv_modify_qp: GID index 30 does not exist", "are 0 ("]),
    ("mask", &["ibv_modify_qp: the mask has unknown bits: 0x40000000"]),
    ("GID of a handle", &["ibv_create_ah: GID index 30 does not exist"]),
    ("elements", &["ibv_post_send: 9 scatter/gather elements, of 4 (max_send_sge)"]),
    ("elements of a receive", &["ibv_post_recv: 9 scatter/gather elements, of 4 (max_recv_sge)"]),
    ("inline", &["ibv_post_send: 4000 bytes of inline data, of 128 (max_inline_data)"]),
    ("operation", &["ibv_post_send: the operation 77 is not supported"]),
    ("full again", &["is full: it has room for 64 (max_send_wr)", "signal", "(ENOMEM)"]),
    ("port space", &["rdma_create_id: the port space 0x7777 is not known"]),
    ("unresolved", &["rdma_create_qp: ", "rdma_resolve_addr"]),
    ("no request", &["rdma_accept: the id has no request to accept"]),
    ("address", &["rdma_bind_addr: the address is of the family 99"]),
    ("completion queue in use", &["ibv_destroy_cq: 2 queue pairs", "(EBUSY)"]),
    ("channel in use", &["ibv_destroy_comp_channel: 2 completion queues"]),
    ("domain in use", &["ibv_dealloc_pd: 2 queue pairs", "some memory regions"]),
];

/// The first line of a site that can only be a mistake appears without being asked for; others, and
/// all from the second time on, at `info`.
#[test]
fn each_mistake_has_its_line() {
    let said = mistakes("mistakes", &[("IWARP_LOG", "info"), ("IWARP_PERSONALITY", "roce")]);
    for (name, words) in LINES {
        let line = said.get(name).unwrap_or_else(|| panic!("no mistake {name}: {said:?}"));
        assert!(words.iter().all(|word| line.contains(word)), "{name}: {words:?}: {line}");
    }
    let elements: usize = said.values().map(|part| part.matches("9 scatter/gather").count()).sum();
    assert!((2..100).contains(&elements), "{elements} lines of the same place");
}

#[test]
fn a_place_says_it_once_unless_asked_for() {
    let said = mistakes("mistakes_once", &[("IWARP_PERSONALITY", "roce")]);
    let all: String = said.values().map(String::as_str).collect();
    // Places that programs try are silent, and those that another mistake has met before.
    let unsaid = ["operation", "full again", "GID of a handle", "missing of RTR", "vendor's type"];
    for (name, words) in LINES.iter().filter(|(name, _)| !unsaid.contains(name)) {
        assert!(words.iter().all(|word| all.contains(word)), "{name}: {words:?}: {all}");
    }
    assert_eq!(all.matches("9 scatter/gather elements, of 4 (max_send_sge)").count(), 1, "{all}");
    assert_eq!(all.matches("GID index 30").count(), 1, "{all}");
    let said = mistakes("mistakes_off", &[("IWARP_PERSONALITY", "roce"), ("IWARP_LOG", "off")]);
    assert!(said.values().all(String::is_empty), "{said:?}");
}

/// An error number that means a mistake is made by `refuse!` or `decline!`, which want a sentence.
#[test]
fn no_mistake_is_refused_without_a_word() {
    const MISTAKES: [&str; 4] = ["EINVAL", "ENOMEM", "EBUSY", "EOPNOTSUPP"];

    let mut wordless = Vec::new();
    let mut look = |path: &Path, text: &str| {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (at, line) in code.lines().enumerate() {
            let bare = MISTAKES.iter().any(|number| {
                [
                    format!("plain(libc::{number})"),
                    format!("return libc::{number}"),
                    format!("set_errno(libc::{number})"),
                ]
                .iter()
                .any(|form| line.contains(form))
            });
            if bare {
                wordless.push(format!("{}:{}: {}", path.display(), at + 1, line.trim()));
            }
        }
    };
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files += 1;
                look(&path, &std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    assert!(files > 40, "{files}");
    // These have said it already: a function that is not there, and a domain that was refused.
    wordless.retain(|line| !line.contains("unsupported.rs") && !line.contains("cm/device.rs"));
    assert_eq!(wordless, Vec::<String>::new());
}
