// SPDX-License-Identifier: MIT OR Apache-2.0

//! The serving process of the demo.

use std::io::Write;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use iwarp::cm::{ConnectParams, Listener};
use iwarp::{Access, Buffer, LocalPath, MemoryRegion, SendOp, WorkCompletion};
use iwarp_kit::child::{end_with_parent, loopback};
use iwarp_kit::pattern;

use super::messages::{Ask, BULK, COUNTER, COUNTER_START, Lent, MAX_MESSAGE, PING, TO_READ};
use super::{PATIENCE, ServerArgs};
use crate::completions::{End, QUIET, WaitError};
use crate::demo::explained::{Deed, Journal};

const RECEIVE: u64 = 1;

/// The text that waits in the server's memory to be read.
pub(crate) fn to_read(process: u32) -> String {
    format!("Process {process} left this here and was not asked when it was read.")
}

/// Runs the serving process: prints where it listens, serves one connection, ends with it.
pub(crate) fn serve(args: &ServerArgs) -> Result<()> {
    end_with_parent()?;
    let journal = args.journal.then(Journal::new);
    let device = args.settings.device(journal.as_ref(), LocalPath::Auto)?;
    let listener = Listener::bind(&device, SocketAddr::new(loopback(), 0))?;
    let addr = listener.local_addr().context("the listener has no address")?;
    let mut end = End::noted(&device, journal.clone())?;
    let everything = Access::LOCAL_WRITE | Access::REMOTE;
    let lent = end.allocate(BULK + args.settings.size, everything)?;
    let memory = lent.buffer().context("memory without a buffer")?;
    memory.write_at(TO_READ, to_read(std::process::id()).as_bytes());
    memory.write_at(COUNTER, &COUNTER_START.to_ne_bytes());
    let message = end.allocate(MAX_MESSAGE, Access::LOCAL_WRITE)?;
    end.post_recv(RECEIVE, message.whole())?;

    end.note(|| Deed::new("listen", addr.to_string(), "rdma_listen"));
    let mut stdout = std::io::stdout();
    writeln!(stdout, "listening {addr}")?;
    stdout.flush()?;
    let incoming = listener.accept(Some(PATIENCE))?.context("no client connected")?;
    let where_it_is = Lent { stag: lent.rkey(), to: lent.base(), len: lent.len() as u64 };
    let params = ConnectParams::new().private_data(where_it_is.encode());
    end.note(|| Deed::new("accept", "private data: what is lent", "rdma_accept"));
    let connection = incoming.accept(&end.qp, &params)?;
    let answered = answer(&mut end, &message, memory);
    if let Some(journal) = journal {
        if connection.wait_disconnected(Some(PATIENCE)).is_some() {
            end.note(|| Deed::new("disconnected", "an event", "RDMA_CM_EVENT_DISCONNECTED"));
        }
        writeln!(stdout, "{}", serde_json::to_string(&journal.log())?)?;
        stdout.flush()?;
    }
    answered
}

/// Answers until the client disconnects.
fn answer(end: &mut End, message: &MemoryRegion, memory: &Buffer) -> Result<()> {
    let inbox = message.buffer().context("memory without a buffer")?;
    let mut octets = [0; MAX_MESSAGE];
    loop {
        let received = match end.wait(RECEIVE, None) {
            Ok(received) => received,
            Err(WaitError::Ended) => return Ok(()),
            Err(error) => return Err(error).context("waiting for a message"),
        };
        let len = received.byte_len as usize;
        inbox.read_at(0, &mut octets[..len]);
        // The next message may come as soon as this one is answered.
        end.post_recv(RECEIVE, message.whole())?;
        if len == PING {
            end.post_inline(QUIET, SendOp::SEND, &octets[..PING])?;
            continue;
        }
        let reply = match Ask::decode(&octets[..len])? {
            Ask::Hello(text) => {
                format!("Process {} got {} bytes.", std::process::id(), text.len()).into_bytes()
            }
            Ask::Look { offset, len } => look(memory, offset, len)?,
            Ask::Check { seed } => {
                pattern::difference(memory, BULK, seed).unwrap_or_default().into_bytes()
            }
            Ask::Expect => {
                end.post_inline(QUIET, SendOp::SEND, &[])?;
                let mut data = expect_immediate(end.wait(RECEIVE, Some(PATIENCE))?)?;
                end.post_recv(RECEIVE, message.whole())?;
                data.reverse();
                end.post_bare(QUIET, SendOp::Immediate { solicited: false, data })?;
                continue;
            }
        };
        end.post_inline(QUIET, SendOp::SEND, &reply)?;
    }
}

/// The bytes that the client wants to see.
fn look(memory: &Buffer, offset: u64, len: u64) -> Result<Vec<u8>> {
    let end = offset.checked_add(len).filter(|&end| end <= BULK as u64);
    if end.is_none() || len > MAX_MESSAGE as u64 {
        bail!("the client wants to see {len} bytes at {offset}");
    }
    let mut octets = vec![0; len as usize];
    memory.read_at(offset as usize, &mut octets);
    Ok(octets)
}

fn expect_immediate(received: WorkCompletion) -> Result<[u8; 8]> {
    received.immediate.context("expected Immediate Data, got a Send")
}
