// SPDX-License-Identifier: MIT OR Apache-2.0

//! RoCE v2: packets, the queue pairs that they run between, and the connection manager.

mod answers;
mod cm;
mod half;
mod open;
mod packet;
mod requester;
mod stall;
mod told;
mod train;

use std::collections::HashMap;
use std::net::IpAddr;

use iwarp_roce::cm::gsi_payload;
use iwarp_roce::probe::is_question;
use iwarp_roce::wire::{GSI_QP, Header, Mtu, Packet, Transport};

use crate::Settings;
use crate::findings::Moment;
use crate::ip;
use crate::report::Frame;
use cm::{Change, Exchanges};
use half::{Half, Key};
use packet::{Decoded, Icrc, Read};
use train::Trains;

pub(crate) use iwarp_roce::wire::PORT;

/// All RoCE of a capture.
#[derive(Debug)]
pub(crate) struct Roce {
    settings: Settings,
    halves: Vec<Half>,
    /// The half that the next packet with a key belongs to.
    current: HashMap<Key, usize>,
    exchanges: Exchanges,
    congestion: HashMap<u32, u64>,
    last: Moment,
    trains: Trains,
    pub(crate) strange: u64,
}

/// The largest path MTU.
const LARGEST: u64 = 4096;
/// The names of ends within findings of a half: its sender, and the other.
const SENDER: [&str; 2] = ["\u{1}", "\u{2}"];

impl Roce {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            halves: Vec::new(),
            current: HashMap::new(),
            exchanges: Exchanges::default(),
            congestion: HashMap::new(),
            last: Moment::default(),
            trains: Trains::default(),
            strange: 0,
        }
    }

    /// Takes the UDP payload of an IP packet.
    pub(crate) fn datagram(
        &mut self,
        packet: &ip::Packet<'_>,
        source_port: u16,
        kept: &[u8],
        length: usize,
        when: Moment,
    ) {
        self.last = when;
        let read = packet::read(packet, source_port, kept, length);
        let whole = match &read {
            Read::Packet(decoded) => decoded.icrc != Icrc::Bad,
            _ => true,
        };
        if !whole && let Some(train) = self.trains.cut(packet, source_port, kept) {
            for (id, part) in train {
                let identification = packet.identification.map(|_| (id.number, id.may_fragment));
                let one = ip::Packet { identification, length: part.len(), ..*packet };
                let ends = [packet.source, packet.destination];
                self.read(packet::read(&one, source_port, part, part.len()), ends, when);
            }
            return;
        }
        self.read(read, [packet.source, packet.destination], when);
    }

    fn read(&mut self, read: Read, ends: [IpAddr; 2], when: Moment) {
        match read {
            Read::Packet(decoded) => self.packet(&decoded, when),
            Read::Congestion(queue_pair) => *self.congestion.entry(queue_pair).or_default() += 1,
            Read::Hidden(header) => self.hidden(&header, ends, when),
            Read::Strange => self.strange += 1,
        }
    }

    fn packet(&mut self, decoded: &Decoded, when: Moment) {
        let header = &decoded.header;
        if header.bth.dest_qp == GSI_QP && header.transport == Transport::Ud {
            return self.management(decoded, when);
        }
        let from = header.deth.map(|deth| deth.source_qp);
        let key = Key {
            source: decoded.source,
            destination: decoded.destination,
            queue_pair: header.bth.dest_qp,
            from,
        };
        let transport = header.transport;
        let index = self.half(key, transport, when);
        if let Some(from) = from {
            self.pair_datagrams(index, key, from);
        }
        let response = header.message.is_response();
        if response && self.halves[index].partner.is_none() {
            self.find_partner(index, decoded);
        }
        self.pauses(index, when);
        let half = &mut self.halves[index];
        half.count(decoded, when);
        if self.settings.frames {
            let text = packet::line(decoded);
            half.lines.push(Frame { packet: when.packet, at: when.at, by: 0, text });
        }
        let whole = half.requester.mtu.unwrap_or(LARGEST);
        if decoded.payload.is_none() && decoded.length > whole && transport != Transport::Ud {
            return self.cut_train(index, when);
        }
        // Ends of our own kind ask each other so which wire they speak.
        if is_question(&header.message) {
            half.requester.messages.add("private WRITE of nothing (question)", 0, 1);
            return;
        }
        if !response {
            let Half { requester, findings, spans, .. } = half;
            return requester.request(decoded, when, SENDER[0], findings, spans);
        }
        let Some(partner) = half.partner else { return };
        let Half { requester, findings, spans, .. } = &mut self.halves[partner];
        requester.answer(decoded, when, SENDER, findings, spans);
    }

    fn half(&mut self, key: Key, transport: Transport, when: Moment) -> usize {
        *self.current.entry(key).or_insert_with(|| {
            self.halves.push(Half::new(key, transport, when));
            self.halves.len() - 1
        })
    }

    /// A snap length has cut the headers of a packet.
    fn hidden(&mut self, header: &Header, [source, destination]: [IpAddr; 2], when: Moment) {
        if header.transport == Transport::Ud {
            self.strange += 1;
            return;
        }
        let queue_pair = header.bth.dest_qp;
        let key = Key { source, destination, queue_pair, from: None };
        let index = self.half(key, header.transport, when);
        let half = &mut self.halves[index];
        half.packets += 1;
        half.last = when;
        self.lose(
            index,
            when,
            "headers are cut by the snap length, so messages and losses cannot be judged; keep 128 \
             bytes of each packet",
        );
    }

    fn lose(&mut self, index: usize, when: Moment, text: &str) {
        let half = &mut self.halves[index];
        if !half.findings.has("cut-headers") {
            half.findings.remark(when, "cut-headers", 0, text);
        }
        half.requester.lose();
        if let Some(partner) = half.partner {
            self.halves[partner].requester.lose();
        }
    }

    /// A snap length has cut a train, whose packets cannot be told apart.
    fn cut_train(&mut self, index: usize, when: Moment) {
        self.lose(
            index,
            when,
            "trains of packets are cut by the snap length: only the first packet of each is known, \
             so messages and losses cannot be judged",
        );
    }

    fn management(&mut self, decoded: &Decoded, when: Moment) {
        let ends = [decoded.source, decoded.destination];
        let octets = decoded.payload.as_deref();
        let packet = octets.map(|payload| Packet { header: decoded.header, payload });
        let Some(octets) = packet.as_ref().and_then(gsi_payload) else {
            self.exchanges.strange += 1;
            return;
        };
        if let Change::Accepted(index) =
            self.exchanges.take(ends, octets, when, self.settings.frames)
        {
            self.accepted(index, when);
        }
    }

    /// A connection has come to be: its queue pairs and first PSNs are known.
    fn accepted(&mut self, index: usize, when: Moment) {
        let exchange = &mut self.exchanges.all[index];
        let Some(rep) = exchange.rep else { return };
        let req = &exchange.req;
        let [initiator, responder] = exchange.ends;
        let mtu = Mtu::from_code(req.mtu).map(|mtu| mtu.octets() as u64);
        let transport = match req.transport {
            iwarp_roce::cm::message::TransportType::Uc => Transport::Uc,
            _ => Transport::Rc,
        };
        let sides = [
            (initiator, responder, rep.local_qpn, rep.starting_psn),
            (responder, initiator, req.local_qpn, req.starting_psn),
        ];
        let first = self.halves.len();
        for (side, (source, destination, queue_pair, psn)) in sides.into_iter().enumerate() {
            let key = Key { source, destination, queue_pair, from: None };
            let mut half = Half::new(key, transport, when);
            half.partner = Some(first + 1 - side);
            half.requester.next = Some(psn);
            half.requester.mtu = mtu;
            half.requester.mtu_agreed = mtu.is_some();
            self.current.insert(key, first + side);
            self.halves.push(half);
            exchange.halves[side] = Some(first + side);
        }
    }

    fn pair_datagrams(&mut self, index: usize, key: Key, from: u32) {
        if self.halves[index].partner.is_some() {
            return;
        }
        let back = Key {
            source: key.destination,
            destination: key.source,
            queue_pair: from,
            from: Some(key.queue_pair),
        };
        if let Some(&partner) = self.current.get(&back)
            && partner != index
        {
            self.halves[index].partner = Some(partner);
            self.halves[partner].partner = Some(index);
        }
    }

    /// Finds the requests that an answer is for: packets do not tell where they come from.
    fn find_partner(&mut self, index: usize, decoded: &Decoded) {
        let psn = decoded.header.bth.psn;
        let key = self.halves[index].key;
        let fits = |candidate: usize| {
            let half = &self.halves[candidate];
            half.partner.is_none()
                && candidate != index
                && half.transport == Transport::Rc
                && (half.key.source, half.key.destination) == (key.destination, key.source)
                && half.requester.requests > 0
        };
        let distance = |candidate: &usize| {
            let requester = &self.halves[*candidate].requester;
            let asked = requester.open.iter().any(|open| open.covers(psn));
            let near = requester.next.map_or(i32::MAX, |next| psn.ahead_of(next).saturating_abs());
            (!asked, near)
        };
        let best = (0..self.halves.len()).filter(|candidate| fits(*candidate)).min_by_key(distance);
        let Some(best) = best else { return };
        let (unasked, near) = distance(&best);
        if unasked && near > 1 << 12 {
            return;
        }
        self.halves[index].partner = Some(best);
        self.halves[best].partner = Some(index);
    }

    /// Says who waited in a pause that ends now.
    fn pauses(&mut self, index: usize, when: Moment) {
        let partner = self.halves[index].partner;
        let last = |index: usize| {
            let half = &self.halves[index];
            (half.packets > 0).then_some(half.last)
        };
        let both = [last(index), partner.and_then(last)];
        let Some(since) = both.into_iter().flatten().max_by_key(|when| (when.at, when.packet))
        else {
            return;
        };
        let settings = self.settings;
        for half in [Some(index), partner].into_iter().flatten() {
            self.halves[half].pause(since, when, &settings, SENDER);
        }
    }
}
