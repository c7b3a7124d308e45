// SPDX-License-Identifier: MIT OR Apache-2.0

//! A trial of the calls by which a connection moves, for users who ask whether one could.

use std::os::fd::{AsFd, OwnedFd};

use iwarp_os::local::{Marks, Ring};
use iwarp_os::unix::{SeqListener, SeqSocket};
use iwarp_types::Extensions;

use super::hindrance::{Cause, Hindrance};
use super::line::check_user;
use super::message::{LEN, Message};
use super::name::{random, socket_name};
use crate::engine::options::Options;
use crate::port::local::ROOM;

/// Fails where no connection of a device with these options could move.
pub(crate) fn hindrance_here(options: &Options) -> Result<(), Hindrance> {
    if options.extensions != Extensions::Ask {
        return Err(Cause::NoHello.into());
    }
    if options.faults.is_some() {
        return Err(Cause::Wrapped.into());
    }
    try_out()
}

/// Takes the steps of both ends in this process, which keeps nothing of them.
fn try_out() -> Result<(), Hindrance> {
    let name = socket_name(random()?);
    let listener = SeqListener::bind(name.as_bytes())?;
    listener.listen(1)?;
    let ours = SeqSocket::connect(name.as_bytes())?;
    let theirs = listener.accept()?;
    check_user(&ours)?;
    check_user(&theirs)?;
    let (_marks, fds) = Marks::create()?;
    ours.send(&Message::Hello.encode(), &fds.passed())?;
    let [memory, peers, own] = received(&theirs)?;
    Marks::join(memory, peers, own)?;
    let (_ring, memory) = Ring::create(ROOM)?;
    ours.send(&Message::Hello.encode(), &[memory.as_fd()])?;
    let [memory] = received(&theirs)?;
    Ring::join(memory.as_fd(), ROOM)?;
    Ok(())
}

fn received<const N: usize>(socket: &SeqSocket) -> Result<[OwnedFd; N], Hindrance> {
    let (_, passed) = socket.recv_passed(&mut [0; LEN])?;
    passed.try_into().map_err(|_| Cause::Descriptors.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_could_move_connections() {
        assert_eq!(try_out(), Ok(()));
    }
}
