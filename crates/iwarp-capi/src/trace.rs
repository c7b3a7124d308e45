// SPDX-License-Identifier: MIT OR Apache-2.0

//! The log at the level `trace`: each call with its arguments and result, each request with its
//! end, each access to registered memory.
//!
//! The lines of a request and its completion are written by the thread that posts or completes it,
//! with the queue pair locked. A trace shows what happens, not how fast; and a program that reads
//! its own standard error, and has a full pipe there, waits for itself.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::sync::Arc;

use iwarp::observe::{AccessObserver, Call, Observer, SomeObserver, Span, Value};
use iwarp::{AsyncEvent, Log, RecvRequest, SendRequest, WorkCompletion};

use crate::log::{is_wanted, say};

/// The observer that writes these lines, where the user asks for them.
pub(crate) fn wanted() -> Option<SomeObserver> {
    is_wanted(Log::Trace).then(|| Arc::new(Trace).into())
}

#[derive(Debug)]
struct Trace;

fn line(text: fmt::Arguments<'_>) {
    say(Log::Trace, text);
}

impl AccessObserver for Trace {
    fn gathered(&self, qp: u32, span: Span) {
        line(format_args!("qp {qp}: read {}", Shown(span)));
    }

    fn placed(&self, qp: u32, span: Span) {
        line(format_args!("qp {qp}: wrote {}", Shown(span)));
    }
}

impl Observer for Trace {
    fn called(&self, call: &Call<'_>) {
        if !found_nothing(call) {
            line(format_args!("{}", Shown(call)));
        }
    }

    fn posted_send(&self, qp: u32, request: &SendRequest<'_>) {
        let SendRequest { wr_id, op, payload, .. } = request;
        let op = op.completes_as();
        line(format_args!("qp {qp}: posted {op:?}, wr_id {wr_id:#x}, {} bytes", payload.len()));
    }

    fn posted_receive(&self, qp: u32, request: &RecvRequest<'_>) {
        line(format_args!("qp {qp}: posted {}", Shown(request)));
    }

    fn posted_shared_receive(&self, srq: u64, request: &RecvRequest<'_>) {
        line(format_args!("srq {srq}: posted {}", Shown(request)));
    }

    fn completed(&self, completion: &WorkCompletion) {
        let WorkCompletion { wr_id, qp, op, status, byte_len, .. } = completion;
        let qp = qp.0;
        line(format_args!("qp {qp}: {op:?}, wr_id {wr_id:#x}, {byte_len} bytes: {status}"));
    }

    fn completed_silently(&self, qp: u32, wr_id: u64) {
        line(format_args!("qp {qp}: wr_id {wr_id:#x}, not signalled: success"));
    }

    fn event(&self, event: &AsyncEvent) {
        line(format_args!("asynchronous event {event:?}"));
    }
}

/// True for looks at an empty queue, with which a program that spins would fill the log.
fn found_nothing(call: &Call<'_>) -> bool {
    match call.verb {
        "ibv_poll_cq" => call.result == Ok(Value::Number(0)),
        "ibv_start_poll" | "ibv_next_poll" => call.result == Err(libc::ENOENT),
        _ => call.result == Err(libc::EAGAIN),
    }
}

/// A part of a line.
struct Shown<T>(T);

impl Display for Shown<Span> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Span { addr, len } = self.0;
        write!(f, "{len} bytes at {addr:#x}")
    }
}

impl Display for Shown<&RecvRequest<'_>> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let RecvRequest { wr_id, sges, .. } = self.0;
        let bytes = sges.iter().map(|sge| u64::from(sge.length)).sum::<u64>();
        write!(f, "a receive, wr_id {wr_id:#x}, {bytes} bytes")
    }
}

impl Display for Shown<Value> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Number(number) => write!(f, "{number}"),
            Value::Pointer(0) => f.write_str("NULL"),
            Value::Pointer(address) => write!(f, "{address:#x}"),
            _ => f.write_str("()"),
        }
    }
}

/// True for the name of an argument of bits, which read best in hexadecimal.
fn is_mask(name: &str) -> bool {
    ["mask", "flags", "access"].iter().any(|end| name.ends_with(end))
}

impl Display for Shown<&Call<'_>> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Call { verb, arguments, result, .. } = self.0;
        write!(f, "{verb}(")?;
        for (number, (name, value)) in arguments.iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            match value {
                Value::Number(bits) if is_mask(name) => write!(f, "{comma}{name}={bits:#x}")?,
                value => write!(f, "{comma}{name}={}", Shown(*value))?,
            }
        }
        f.write_str(")")?;
        match result {
            Ok(Value::Nothing) => Ok(()),
            Ok(value) => write!(f, " = {}", Shown(*value)),
            Err(number) => write!(f, ": {}", io::Error::from_raw_os_error(*number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_reads_as_in_c() {
        let arguments = [
            ("qp", Value::Pointer(0x5500)),
            ("attr", Value::Pointer(0)),
            ("attr_mask", Value::Number(0x31)),
        ];
        let call = Call::new("ibv_modify_qp", &arguments, Err(libc::EINVAL));
        let line = "ibv_modify_qp(qp=0x5500, attr=NULL, attr_mask=0x31): Invalid argument";
        assert_eq!(Shown(&call).to_string(), format!("{line} (os error {})", libc::EINVAL));
        let call = Call::new("ibv_fork_init", &[], Ok(Value::Number(0)));
        assert_eq!(Shown(&call).to_string(), "ibv_fork_init() = 0");
    }
}
