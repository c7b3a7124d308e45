// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two connected ends whose completion queues raise events.

use std::os::fd::AsFd;

use iwarp::cm::{Connection, Listener};
use iwarp::{CompletionChannel, Device, Options, QueuePair, QueuePairAttributes};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::{DEADLINE, End, couple};

struct Parts {
    device: Device,
    channel: CompletionChannel,
    pd: iwarp::ProtectionDomain,
    queues: [iwarp::CompletionQueue; 2],
    qp: QueuePair,
}

impl Parts {
    fn new(options: &Options) -> Self {
        let device = Device::with_options(options.clone()).unwrap();
        let channel = device.create_comp_channel().unwrap();
        let pd = device.alloc_pd();
        let queues = [0; 2].map(|_| device.create_cq(256, Some(&channel)).unwrap());
        let qp = pd.create_qp(&QueuePairAttributes::new(&queues[0], &queues[1])).unwrap();
        Self { device, channel, pd, queues, qp }
    }

    fn end(self, connection: Connection) -> (End, CompletionChannel) {
        let Self { device, channel, pd, queues: [send_cq, recv_cq], qp } = self;
        (End { device, pd, send_cq, recv_cq, qp, connection }, channel)
    }
}

/// Sleeps until the descriptor is readable.
pub fn sleep(channel: &CompletionChannel) {
    let mut fds = [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN)];
    let deadline = Timespec { tv_sec: DEADLINE.as_secs() as i64, tv_nsec: 0 };
    let ready = rustix::event::poll(&mut fds, Some(&deadline)).unwrap();
    assert_eq!(ready, 1, "nobody moves the connection");
}

/// A client and a server, each with the channel on which all its completions raise events.
pub fn connect() -> [(End, CompletionChannel); 2] {
    connect_with(&Options::default())
}

/// A client and a server on devices with these options, each with its channel.
pub fn connect_with(options: &Options) -> [(End, CompletionChannel); 2] {
    let (client, server) = (Parts::new(options), Parts::new(options));
    let listener = Listener::bind(&server.device, "127.0.0.1:0").unwrap();
    let (ours, theirs) = couple(&client.device, &client.qp, &listener, &server.qp);
    [client.end(ours), server.end(theirs)]
}
