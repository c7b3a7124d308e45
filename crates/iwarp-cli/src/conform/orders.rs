// SPDX-License-Identifier: MIT OR Apache-2.0

//! The wishes of an order, as this project's operations. The simulator's target has this file too.

use iwarp_conform::order::{Operation, Request};
use iwarp_types::{AtomicOp, SendOp, Stag, TaggedOffset};

/// The operation of a work request.
pub(crate) fn operation(request: &Request) -> SendOp {
    let (stag, to) = (Stag(request.stag), TaggedOffset(request.to));
    match request.operation {
        Operation::Read => SendOp::Read { stag, to, invalidate: None },
        Operation::Write => SendOp::Write { stag, to },
        Operation::Send { solicited, invalidate } => {
            SendOp::Send { solicited, invalidate: invalidate.then_some(stag) }
        }
        Operation::FetchAdd { add, mask } => {
            SendOp::Atomic { stag, to, op: AtomicOp::FetchAdd { add, mask } }
        }
        Operation::CompareSwap { compare, swap, compare_mask, swap_mask } => {
            let op = AtomicOp::CompareSwap { compare, compare_mask, swap, swap_mask };
            SendOp::Atomic { stag, to, op }
        }
        Operation::Immediate { solicited } => {
            SendOp::Immediate { solicited, data: request.to.to_be_bytes() }
        }
        Operation::WriteImmediate { solicited, data } => {
            SendOp::WriteImmediate { stag, to, solicited, data }
        }
    }
}

/// True if the request has bytes in the target's memory: Immediate Data are in the work request.
pub(crate) const fn has_bytes(request: &Request) -> bool {
    !matches!(request.operation, Operation::Immediate { .. })
}
