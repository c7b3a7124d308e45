// SPDX-License-Identifier: MIT OR Apache-2.0

//! The work of both ends of rping: messages of 16 bytes that lend a buffer or say "go ahead".

use std::time::Duration;

use anyhow::{Context, Result};
use iwarp::{Access, Device, MemoryRegion, SendOp, Stag, TaggedOffset, WorkCompletion};

use crate::completions::{End, WaitError};

/// Bytes of a message.
const MESSAGE: usize = 16;
const OUTBOX: usize = 0;
const INBOX: usize = MESSAGE;

const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const TRANSFER: u64 = 3;

/// A buffer that the client lends, as a message says it: address, key, length, big-endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lent {
    pub(crate) to: TaggedOffset,
    pub(crate) stag: Stag,
    pub(crate) len: u32,
}

impl Lent {
    /// The whole of a region.
    pub(crate) fn of(region: &MemoryRegion) -> Self {
        let len = u32::try_from(region.len()).expect("rping's buffers are small");
        Self { to: region.base(), stag: region.rkey(), len }
    }

    fn encode(self) -> [u8; MESSAGE] {
        let [to, stag, len] = [self.to.0, self.stag.0.into(), self.len.into()];
        (u128::from(to) << 64 | u128::from(stag) << 32 | u128::from(len)).to_be_bytes()
    }

    fn decode(octets: [u8; MESSAGE]) -> Self {
        let all = u128::from_be_bytes(octets);
        Self {
            to: TaggedOffset((all >> 64) as u64),
            stag: Stag((all >> 32) as u32),
            len: all as u32,
        }
    }
}

impl std::fmt::Display for Lent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes at {:#x} of {:#010x}", self.len, self.to.0, self.stag.0)
    }
}

/// An end of the exchange.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) end: End,
    messages: MemoryRegion,
}

impl Exchange {
    /// Makes an end with its first receive posted, ready to be connected.
    pub(crate) fn new(device: &Device) -> Result<Self> {
        let end = End::new(device)?;
        let messages = end.pd.allocate(2 * MESSAGE, Access::LOCAL_WRITE)?;
        let exchange = Self { end, messages };
        exchange.post_recv()?;
        Ok(exchange)
    }

    /// A buffer of this end, for the peer as `access` says.
    pub(crate) fn buffer(&self, size: usize, access: Access) -> Result<MemoryRegion> {
        Ok(self.end.pd.allocate(size, access | Access::LOCAL_WRITE)?)
    }

    fn post_recv(&self) -> Result<()> {
        Ok(self.end.post_recv(RECEIVE, self.messages.sge(INBOX, MESSAGE))?)
    }

    /// Sends a message; `None` means "go ahead", and its bytes mean nothing.
    pub(crate) fn send(&mut self, lent: Option<Lent>) -> Result<()> {
        let octets = lent.map_or([0; MESSAGE], Lent::encode);
        self.messages.buffer().context("memory without a buffer")?.write_at(OUTBOX, &octets);
        self.end.post(SEND, SendOp::SEND, self.messages.sge(OUTBOX, MESSAGE))?;
        self.end.wait(SEND, None).context("sending")?;
        Ok(())
    }

    /// Waits for a message; `None` when the peer disconnects instead.
    pub(crate) fn receive(&mut self) -> Result<Option<Lent>> {
        let received = match self.end.wait(RECEIVE, None) {
            Ok(received) => received,
            Err(WaitError::Ended) => return Ok(None),
            Err(error) => return Err(error).context("waiting for a message"),
        };
        self.open(received).map(Some)
    }

    /// Takes the message of a completion, and makes room for the next.
    fn open(&self, received: WorkCompletion) -> Result<Lent> {
        let len = received.byte_len as usize;
        anyhow::ensure!(len == MESSAGE, "got a message of {len} bytes, not {MESSAGE}");
        let mut octets = [0; MESSAGE];
        self.messages.buffer().context("memory without a buffer")?.read_at(INBOX, &mut octets);
        self.post_recv()?;
        Ok(Lent::decode(octets))
    }

    /// Reads from or writes to what the peer lent, all of it.
    pub(crate) fn transfer(&mut self, op: SendOp, region: &MemoryRegion, len: u32) -> Result<()> {
        self.end.post(TRANSFER, op, region.sge(0, len as usize))?;
        self.end.wait(TRANSFER, None)?;
        Ok(())
    }
}

/// The time that a peer may take to end a connection.
pub(crate) const GOODBYE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use iwarp::{Stag, TaggedOffset};

    use super::Lent;

    /// The bytes are those that librdmacm's rping sends.
    #[test]
    fn a_message_is_that_of_rping() {
        let lent = Lent { to: TaggedOffset(0x5608_a167_1de0), stag: Stag(0xc12b_b900), len: 100 };
        let octets = [0, 0, 0x56, 8, 0xa1, 0x67, 0x1d, 0xe0, 0xc1, 0x2b, 0xb9, 0, 0, 0, 0, 100];
        assert_eq!(lent.encode(), octets);
        assert_eq!(Lent::decode(octets), lent);
    }
}
