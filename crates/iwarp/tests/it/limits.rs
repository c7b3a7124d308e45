// SPDX-License-Identifier: MIT OR Apache-2.0

//! The objects that the device allots, and refuses to allot.

use iwarp::{AsyncEvent, Device, Options, WcStatus};

use crate::common::{Setup, next};

/// Covers: RDMAP-5040-8.1.2-05, SEC-5042-6.4.3.2-01
#[test]
fn completion_queues_have_the_entries_that_were_granted_and_no_more() {
    let device = Device::with_options(Options::default()).unwrap();
    let most = device.attributes().max_cqe as usize;
    for refused in [0, most + 1, usize::MAX] {
        assert!(device.create_cq(refused, None).is_err(), "{refused} entries");
    }
    assert_eq!(device.create_cq(3, None).unwrap().depth(), 3);

    let (client, server) = Setup { depth: 2, ..Setup::default() }.connect();
    server.recv_cq.resize(1).unwrap();
    let buffer = server.region(8);
    server.post_recv(1, &[buffer.whole()]);
    server.post_recv(2, &[buffer.whole()]);
    client.send(1, &[]);
    client.send(2, &[]);
    let number = server.recv_cq.number();
    server.async_event(|event| *event == AsyncEvent::CqError { cq: number });
    let first = next(&server.recv_cq);
    assert_eq!((first.wr_id, first.status), (1, WcStatus::Success));
    assert!(server.recv_cq.poll_one().is_none(), "an entry that was not granted");
}
