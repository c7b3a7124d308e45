// SPDX-License-Identifier: MIT OR Apache-2.0

//! The numbers of a message that came, by the names that cases have for them.

use crate::stream::Message;
use crate::wire::segment::{AtomicRequest, Destination, Kind, ReadRequest};

/// All numbers that are in the headers of such a message.
pub(super) fn numbers(message: &Message) -> Vec<(&'static str, u64)> {
    let data = &message.data;
    let mut numbers = vec![("len", data.len() as u64), ("segments", message.segments as u64)];
    match message.destination {
        Destination::Tagged { stag, to } => numbers.extend([("stag", stag.into()), ("to", to)]),
        Destination::Untagged { invalidate, qn, msn, .. } => {
            numbers.extend([("inv", invalidate.into()), ("qn", qn.into()), ("msn", msn.into())]);
        }
    }
    if let Some(request) = ReadRequest::decode(data) {
        numbers.extend([
            ("size", request.size.into()),
            ("sink-stag", request.sink_stag.into()),
            ("sink-to", request.sink_to),
            ("src-stag", request.source_stag.into()),
            ("src-to", request.source_to),
        ]);
    }
    if let Some(request) = AtomicRequest::decode(data) {
        numbers.extend([
            ("operation", request.operation.into()),
            ("id", request.id.into()),
            ("at-stag", request.stag.into()),
            ("at-to", request.to),
            ("add", request.data),
            ("mask", request.mask),
            ("compare", request.compare),
            ("compare-mask", request.compare_mask),
        ]);
    }
    if let (Kind::AtomicResponse, Some((id, value))) = (message.kind, data.split_at_checked(4)) {
        let id = u32::from_be_bytes(id.try_into().expect("four bytes"));
        let value = u64::from_be_bytes(value.try_into().expect("twelve bytes were checked"));
        numbers.extend([("id", id.into()), ("value", value)]);
    }
    numbers
}
