// SPDX-License-Identifier: MIT OR Apache-2.0

//! Orders: Sends by which a tester tells a target what to do by itself. `conformance/CASES.md` has
//! the words.

/// The Send that says that an order has been carried out.
pub const DONE: &[u8] = b"done";
/// The beginning of a Send that says why an order cannot be carried out there.
pub const CANNOT: &[u8] = b"cannot: ";

/// The beginning of an order.
const PREFIX: &[u8] = b"order ";
/// The most work requests of an order.
const MOST: u32 = 64;

/// A work request that a target is to post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its operation.
    pub operation: Operation,
    /// The place of its bytes in the target's memory `rw`.
    pub at: usize,
    /// The number of bytes that it has there.
    pub length: usize,
    /// The tester's memory, or the STag to invalidate.
    pub stag: u32,
    /// The place in it; of Immediate Data the eight bytes.
    pub to: u64,
}

/// The operation of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// RDMA Read.
    Read,
    /// RDMA Write.
    Write,
    /// One of the four Sends.
    Send {
        /// With Solicited Event.
        solicited: bool,
        /// With Invalidate.
        invalidate: bool,
    },
    /// FetchAdd.
    FetchAdd {
        /// The addend.
        add: u64,
        /// The last bits of its fields.
        mask: u64,
    },
    /// CmpSwap.
    CompareSwap {
        /// The value to compare with.
        compare: u64,
        /// The value that is put in.
        swap: u64,
        /// The bits that are compared.
        compare_mask: u64,
        /// The bits that are put in.
        swap_mask: u64,
    },
    /// Immediate Data.
    Immediate {
        /// With Solicited Event.
        solicited: bool,
    },
    /// RDMA Write, and Immediate Data behind it.
    WriteImmediate {
        /// With Solicited Event.
        solicited: bool,
        /// The four bytes of the program's own among the eight.
        data: [u8; 4],
    },
}

/// The work requests of an order from or to memory of `room` bytes, or the order as text if it
/// makes no sense; `None` where the message is none.
pub fn decode(message: &[u8], room: usize) -> Option<Result<Vec<Request>, String>> {
    let order = message.strip_prefix(PREFIX)?;
    Some(requests(order, room).ok_or_else(|| format!("{:?}", String::from_utf8_lossy(order))))
}

/// The work requests of "OPERATION[,OPERATION]... TIMES LENGTH STAG TO [OPERAND]..."; the
/// operations take turns.
fn requests(order: &[u8], room: usize) -> Option<Vec<Request>> {
    let order = std::str::from_utf8(order).ok()?;
    let mut words = order.split(' ');
    let names = words.next()?.split(',');
    let times: u32 = words.next()?.parse().ok()?;
    let length: u32 = words.next()?.parse().ok()?;
    let stag = u32::try_from(hexadecimal(words.next()?)?).ok()?;
    let to = hexadecimal(words.next()?)?;
    let operands: Vec<u64> = words.map(hexadecimal).collect::<Option<_>>()?;
    let operations: Vec<Operation> =
        names.map(|name| operation(name, &operands)).collect::<Option<_>>()?;
    let fits = u64::from(length) * u64::from(times) <= room as u64;
    if !fits || !(1..=MOST).contains(&times) {
        return None;
    }
    let turns = operations.into_iter().cycle().zip(0..times);
    let request = |(operation, number): (Operation, u32)| {
        let at = number * length;
        let to = to.wrapping_add(at.into());
        Request { operation, at: at as usize, length: length as usize, stag, to }
    };
    Some(turns.map(request).collect())
}

fn hexadecimal(word: &str) -> Option<u64> {
    u64::from_str_radix(word.trim_start_matches("0x"), 16).ok()
}

fn operation(name: &str, operands: &[u64]) -> Option<Operation> {
    let operand = |number: usize| operands.get(number).copied();
    let send = |solicited, invalidate| Operation::Send { solicited, invalidate };
    Some(match name {
        "read" => Operation::Read,
        "write" => Operation::Write,
        "send" => send(false, false),
        "send-solicited" => send(true, false),
        "send-invalidate" => send(false, true),
        "send-solicited-invalidate" => send(true, true),
        "fetch-add" => Operation::FetchAdd { add: operand(0)?, mask: operand(1).unwrap_or(0) },
        "compare-swap" => Operation::CompareSwap {
            compare: operand(0)?,
            swap: operand(1)?,
            compare_mask: operand(2).unwrap_or(u64::MAX),
            swap_mask: operand(3).unwrap_or(u64::MAX),
        },
        "immediate" => Operation::Immediate { solicited: false },
        "immediate-solicited" => Operation::Immediate { solicited: true },
        "write-immediate" | "write-immediate-solicited" => Operation::WriteImmediate {
            solicited: name.ends_with("solicited"),
            data: (operand(0)? as u32).to_be_bytes(),
        },
        _ => return None,
    })
}
