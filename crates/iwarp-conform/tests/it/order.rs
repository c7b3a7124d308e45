// SPDX-License-Identifier: MIT OR Apache-2.0

//! Orders: the meaning of their words, and messages that are none.

use iwarp_conform::order::{Operation, Request, decode};

#[test]
fn operations_take_turns_at_places_one_behind_the_other() {
    let order = decode(b"order read,fetch-add 3 8 0x1234 fffffffffffffff8 5", 24);
    let request = |operation, at, to| Request { operation, at, length: 8, stag: 0x1234, to };
    let add = Operation::FetchAdd { add: 5, mask: 0 };
    let wanted = vec![
        request(Operation::Read, 0, u64::MAX - 7),
        request(add, 8, 0),
        request(Operation::Read, 16, 8),
    ];
    assert_eq!(order, Some(Ok(wanted)));
}

#[test]
fn masks_are_those_of_plain_operations_unless_they_are_said() {
    let first =
        |order: &[u8]| decode(order, 8).expect("an order").expect("a right one")[0].operation;
    let swap = |compare_mask, swap_mask| Operation::CompareSwap {
        compare: 1,
        swap: 2,
        compare_mask,
        swap_mask,
    };
    assert_eq!(first(b"order compare-swap 1 8 0 0 1 2"), swap(u64::MAX, u64::MAX));
    assert_eq!(first(b"order compare-swap 1 8 0 0 1 2 f0 ff"), swap(0xf0, 0xff));
    let add = Operation::FetchAdd { add: 1, mask: 0x80 };
    assert_eq!(first(b"order fetch-add 1 8 0 0 1 80"), add);
    let write = Operation::WriteImmediate { solicited: true, data: [0, 0, 0x12, 0x34] };
    assert_eq!(first(b"order write-immediate-solicited 1 0 0 0 1234"), write);
}

#[test]
fn data_that_are_no_order_are_told_from_a_wrong_order() {
    assert_eq!(decode(b"orders are orders", 8), None);
    for wrong in [
        "order jump 1 8 0 0",
        "order read,jump 1 8 0 0",
        "order fetch-add 1 8 0 0",
        "order compare-swap 1 8 0 0 1",
        "order write-immediate 1 8 0 0",
        "order read 0 8 0 0",
        "order read 65 0 0 0",
        "order read 2 5 0 0",
        "order read 1 8 0x100000000 0",
        "order read 1 8 0",
        "order read 1 8 0 z",
        "order read 1 8 0 0 z",
    ] {
        let decoded = decode(wrong.as_bytes(), 8);
        assert!(matches!(&decoded, Some(Err(said)) if wrong.contains(said.trim_matches('"'))));
    }
}
