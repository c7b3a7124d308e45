// SPDX-License-Identifier: MIT OR Apache-2.0

//! A port without any descriptor: what somebody writes whose bytes go through memory.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use iwarp::port::{Descriptors, Ends, IoPart, IoPartMut, Port, Readiness, Waker, WakerSlot};
use iwarp::{CompletionChannel, Device, Ended, QpState, RecvRequest};

use super::toy_core::End;
use crate::common::{DEADLINE, next, pattern, succeeded, until};

/// Bytes that a ring holds.
const ROOM: usize = 3000;

/// One direction.
#[derive(Debug, Default)]
struct Ring {
    octets: Mutex<VecDeque<u8>>,
    ended: AtomicBool,
    reader: WakerSlot,
    writer: WakerSlot,
}

/// Bytes from one ring into another.
#[derive(Debug)]
struct RingPort([Arc<Ring>; 2]);

impl Port for RingPort {
    fn send(&self, parts: &[IoPart<'_>], _: bool) -> io::Result<usize> {
        let [_, out] = &self.0;
        let mut octets = Vec::new();
        let room = ROOM - out.octets.lock().unwrap().len();
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let sent = IoPart::gather(parts, &mut octets, room)?;
        out.octets.lock().unwrap().extend(octets);
        out.reader.wake(Readiness::INPUT);
        Ok(sent)
    }

    fn recv(&self, parts: &mut [IoPartMut<'_>]) -> io::Result<usize> {
        let [incoming, _] = &self.0;
        let mut octets = incoming.octets.lock().unwrap();
        if octets.is_empty() && !incoming.ended.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let came = IoPartMut::scatter(parts, octets.make_contiguous())?;
        octets.drain(..came);
        drop(octets);
        incoming.writer.wake(Readiness::ROOM);
        Ok(came)
    }

    fn has_input(&self) -> io::Result<bool> {
        Ok(!self.0[0].octets.lock().unwrap().is_empty())
    }

    fn shutdown_write(&self) -> io::Result<()> {
        self.0[1].ended.store(true, Ordering::SeqCst);
        self.0[1].reader.wake(Readiness::INPUT);
        Ok(())
    }

    fn ends(&self) -> Ends {
        Ends { local: None, peer: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0) }
    }

    fn descriptors(&self) -> Descriptors<'_> {
        Descriptors::none()
    }

    fn readiness(&self) -> Readiness {
        let [incoming, out] = &self.0;
        let ended = incoming.ended.load(Ordering::SeqCst);
        let mut ready = Readiness::empty();
        ready.set(Readiness::INPUT, ended || !incoming.octets.lock().unwrap().is_empty());
        ready.set(Readiness::ROOM, out.octets.lock().unwrap().len() < ROOM);
        ready
    }

    fn set_waker(&self, waker: Waker) {
        self.0[0].reader.set(waker.clone());
        self.0[1].writer.set(waker);
    }
}

impl Drop for RingPort {
    fn drop(&mut self) {
        let _ = self.shutdown_write();
    }
}

fn pair(device: &Device, channel: Option<&CompletionChannel>) -> [End; 2] {
    let [one, other] = [Arc::new(Ring::default()), Arc::new(Ring::default())];
    let ends = [[Arc::clone(&one), Arc::clone(&other)], [other, one]];
    ends.map(|rings| End::new(device, Box::new(RingPort(rings)), channel))
}

/// Sends messages of many lengths, some longer than the ring has room, and calls `wait` before it
/// takes what has come.
fn exchange([ours, theirs]: &[End; 2], wait: impl Fn()) {
    const LEN: usize = 20_000;
    let octets = pattern(LEN, 3);
    let (source, sink) = (ours.region(&octets), theirs.region(&[0; LEN]));
    for round in 0..200 {
        let len = LEN >> (round % 15);
        theirs.recv_cq.request_notify(false);
        let sges = [sink.sge(0, len)];
        theirs.qp.post_recv(&RecvRequest::new(round, &sges)).unwrap();
        ours.send(round, &[source.sge(LEN - len, len)]);
        wait();
        let received = succeeded(next(&theirs.recv_cq));
        assert_eq!((received.wr_id, received.byte_len as usize), (round, len));
        assert_eq!(sink.buffer().unwrap().to_vec()[..len], octets[LEN - len..]);
        assert_eq!(succeeded(next(&ours.send_cq)).wr_id, round);
    }
}

#[test]
fn a_port_without_a_descriptor_is_moved_by_polls() {
    let device = Device::open().unwrap();
    let ends = pair(&device, None);
    exchange(&ends, || {});
    let [ours, theirs] = ends;
    ours.qp.modify(QpState::Err).unwrap();
    assert_eq!([ours.ended(), theirs.ended()], [Ended::Closed; 2]);
}

#[test]
fn a_port_without_a_descriptor_wakes_a_call_that_blocks() {
    let device = Device::open().unwrap();
    let channel = device.create_comp_channel().unwrap();
    let ends = pair(&device, Some(&channel));
    exchange(&ends, || {
        channel.wait(Some(DEADLINE)).unwrap().expect("an event within the deadline");
    });
}

#[test]
fn a_port_without_a_descriptor_wakes_who_sleeps_on_the_channels_descriptor() {
    let device = Device::open().unwrap();
    let channel = device.create_comp_channel().unwrap();
    let ends = pair(&device, Some(&channel));
    exchange(&ends, || {
        crate::common::channels::sleep(&channel);
        assert!(channel.try_next().is_some());
    });
}

/// One thread sleeps and answers, the other polls: each is somewhere else when the other sends.
#[test]
fn two_threads_miss_no_event() {
    const ROUNDS: u64 = 2000;
    const AHEAD: u64 = 8;
    let device = Device::open().unwrap();
    let channel = device.create_comp_channel().unwrap();
    let [ours, theirs] = pair(&device, Some(&channel));
    let (source, sink) = (ours.region(&[1; 8]), theirs.region(&[0; 8]));
    let receive = |wr_id| {
        theirs.qp.post_recv(&RecvRequest::new(wr_id, &[sink.sge(0, 8)])).unwrap();
    };
    (0..AHEAD).for_each(receive);
    // A message for which there is no receive would end the stream.
    let posted = AtomicU64::new(AHEAD);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                loop {
                    theirs.recv_cq.request_notify(false);
                    if let Some(received) = theirs.recv_cq.poll_one() {
                        assert_eq!(succeeded(received).wr_id, round);
                        break;
                    }
                    assert!(channel.wait(Some(DEADLINE)).unwrap().is_some(), "round {round}");
                }
                receive(round + AHEAD);
                posted.store(round + AHEAD + 1, Ordering::Release);
            }
        });
        for round in 0..ROUNDS {
            until("a receive", || (posted.load(Ordering::Acquire) > round).then_some(()));
            ours.send(round, &[source.sge(0, 8)]);
            assert_eq!(succeeded(next(&ours.send_cq)).wr_id, round);
        }
    });
}
