// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory of requests that were reported flushed is the program's again.

use std::sync::OnceLock;
use std::thread;

use iwarp::{Options, WcStatus};

use crate::common::{Setup, until};

const SIZE: usize = 1 << 20;
const ROUNDS: u64 = 100;

/// A receive that a disconnect flushes may be in the middle of being filled by another thread:
/// its completion comes when that thread is done with it.
#[test]
fn a_flushed_receive_gets_no_octets() {
    for crc in [false, true] {
        for round in 0..ROUNDS {
            interrupted(&Options::new().crc(crc), round);
        }
    }
}

fn interrupted(options: &Options, round: u64) {
    let (client, server) = Setup::both(options).connect();
    let (source, sink) = (client.region_of(&vec![0x55; SIZE]), server.region(SIZE));
    let octets = sink.buffer().unwrap();
    server.post_recv(1, &[sink.whole()]);
    client.send(1, &[source.whole()]);
    // One of them moves the bytes, another may see the completion meanwhile.
    let ended = OnceLock::new();
    let poll = || {
        while ended.get().is_none() {
            if let Some(completion) = server.recv_cq.poll_one() {
                octets.write_at(0, &[0xaa; SIZE]);
                ended.set(completion).unwrap();
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(poll);
        scope.spawn(poll);
        // Somewhere in the middle of the message.
        let some = (round as usize * 7919) % SIZE;
        until("octets to arrive", || {
            let mut octet = [0];
            octets.read_at(some, &mut octet);
            (octet != [0]).then_some(())
        });
        server.connection.disconnect();
    });
    let completion = ended.get().unwrap();
    if completion.status == WcStatus::Flushed {
        drop(client);
        until("the connection to end", || (server.device.connections() == 0).then_some(()));
    }
    assert!(octets.to_vec() == [0xaa; SIZE], "placed behind {:?}", completion.status);
}
