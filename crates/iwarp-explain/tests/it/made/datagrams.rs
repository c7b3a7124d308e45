// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets of RoCE v2 between queue pair 0x11 of 10.0.0.1 (end 0) and 0x22 of 10.0.0.2 (end 1).

use iwarp_roce::cm::message::{self, PathRecord, Rej, Rejected, Rep, Req, Rtu, TransportType};
use iwarp_roce::cm::{Mad, RejectReason, ServiceId, TimeCode, gsi_header};
use iwarp_roce::wire::icrc::{self, Identification};
use iwarp_roce::wire::{
    Aeth, Bth, Deth, Header, Message, NakCode, Path, Pkey, Position, Psn, Reth, RnrTimer, SendTail,
    Syndrome, Transport, padding,
};
use iwarp_types::{AddressVector, PortSpace, Stag, TaggedOffset};

use super::{Stamped, ip};

const UDP: u8 = 17;
const QUEUE_PAIRS: [u32; 2] = [0x11, 0x22];
/// The first PSN of each end.
pub(crate) const FIRST: [u32; 2] = [0xff_fffe, 500];
pub(crate) const MTU: usize = 1024;

/// The packets so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Datagrams {
    pub(crate) packets: Vec<Stamped>,
    /// The time of the next packet, in microseconds.
    pub(crate) now: u64,
    transport: Option<Transport>,
    id: u16,
}

impl Datagrams {
    pub(crate) fn of(transport: Transport) -> Self {
        Self { transport: Some(transport), ..Self::default() }
    }

    /// A connection that the connection manager has set up.
    pub(crate) fn connected() -> Self {
        let mut all = Self::default();
        all.management(0, req());
        all.management(1, rep());
        let rtu =
            Rtu { local_comm_id: 1, remote_comm_id: 2, private_data: [0; message::limits::RTU] };
        all.management(0, rtu);
        all
    }

    pub(crate) fn wait(&mut self, millis: u64) {
        self.now += millis * 1000;
    }

    pub(crate) fn management(&mut self, from: usize, message: impl Into<message::Message>) {
        let mad = Mad { tid: 9, modifier: 0, message: message.into() };
        self.header(from, &gsi_header(Psn::new(0)), &mad.write());
    }

    /// Puts a packet.
    pub(crate) fn header(&mut self, from: usize, header: &Header, payload: &[u8]) {
        let mut octets = vec![0; Header::MAX_LEN];
        let len = header.write(payload.len(), &mut octets);
        octets.truncate(len);
        octets.extend_from_slice(payload);
        octets.resize(octets.len() + padding(payload.len()), 0);
        let ends = if from == 0 { [1, 2] } else { [2, 1] }.map(|last| [10, 0, 0, last].into());
        let path = Path::new(AddressVector::new(ends[0], ends[1]), 50_000);
        self.id += 1;
        let icrc = icrc::of(&path, Identification::new(self.id), &octets);
        octets.extend_from_slice(&icrc);
        let mut udp = Vec::new();
        for field in [50_000, 4791, 8 + octets.len() as u16, 0] {
            udp.extend_from_slice(&field.to_be_bytes());
        }
        udp.extend_from_slice(&octets);
        self.packets.push((self.now, ip(from, UDP, self.id, &udp)));
        self.now += 50;
    }

    /// Puts a packet of a message, which asks for an acknowledgement at its end.
    pub(crate) fn message(&mut self, from: usize, psn: u32, message: Message, payload: &[u8]) {
        let transport = self.transport.unwrap_or(Transport::Rc);
        let psn = Psn::new(psn);
        let ends = match message {
            Message::Send { position, .. } => position.ends(),
            Message::WriteMore { last, .. } => last,
            Message::WriteBegin { only, .. } => only,
            _ => true,
        };
        let bth = Bth::new(QUEUE_PAIRS[1 - from], psn).asking(ends && !message.is_response());
        let ud = transport == Transport::Ud;
        let deth = ud.then_some(Deth { qkey: 1, source_qp: QUEUE_PAIRS[from] });
        self.header(from, &Header { bth, transport, deth, message }, payload);
    }

    /// A Send of one packet.
    pub(crate) fn send(&mut self, from: usize, psn: u32, payload: &[u8]) {
        let message = Message::Send { position: Position::Only, tail: SendTail::Plain };
        self.message(from, psn, message, payload);
    }

    pub(crate) fn ack(&mut self, from: usize, psn: u32) {
        self.answer(from, psn, Syndrome::ACK);
    }

    pub(crate) fn nak(&mut self, from: usize, psn: u32, code: NakCode) {
        self.answer(from, psn, Syndrome::Nak(code));
    }

    pub(crate) fn rnr(&mut self, from: usize, psn: u32) {
        self.answer(from, psn, Syndrome::RnrNak(RnrTimer::new(14)));
    }

    fn answer(&mut self, from: usize, psn: u32, syndrome: Syndrome) {
        self.message(from, psn, Message::Acknowledge(Aeth { syndrome, msn: 0 }), &[]);
    }

    pub(crate) fn read(&mut self, from: usize, psn: u32, length: u32) {
        self.message(from, psn, Message::ReadRequest(reth(length)), &[]);
    }

    pub(crate) fn response(&mut self, from: usize, psn: u32, position: Position, length: usize) {
        let aeth =
            (position != Position::Middle).then_some(Aeth { syndrome: Syndrome::ACK, msn: 1 });
        self.message(from, psn, Message::ReadResponse { position, aeth }, &vec![7; length]);
    }

    /// A Write of whole packets, the last of which may be shorter.
    pub(crate) fn write(&mut self, from: usize, psn: u32, length: usize) {
        let bytes = vec![5; length];
        let parts: Vec<&[u8]> = if length == 0 { vec![&[]] } else { bytes.chunks(MTU).collect() };
        for (at, part) in parts.iter().enumerate() {
            let last = at + 1 == parts.len();
            let message = match at {
                0 => Message::WriteBegin { only: last, reth: reth(length as u32), immediate: None },
                _ => Message::WriteMore { last, immediate: None },
            };
            self.message(from, psn + at as u32, message, part);
        }
    }

    /// Changes the last byte of the last packet.
    pub(crate) fn damage(&mut self) {
        let (_, packet) = self.packets.last_mut().unwrap();
        *packet.last_mut().unwrap() ^= 1;
    }
}

fn reth(length: u32) -> Reth {
    Reth { va: TaggedOffset(0x1000), rkey: Stag(0x99), length }
}

pub(crate) fn req() -> Req {
    Req {
        local_comm_id: 1,
        vendor_id: 0,
        service_id: ServiceId::new(PortSpace::Tcp, 7174),
        local_ca_guid: 5,
        local_qkey: 0,
        local_qpn: QUEUE_PAIRS[0],
        responder_resources: 4,
        local_eecn: 0,
        initiator_depth: 4,
        remote_eecn: 0,
        remote_response_timeout: TimeCode::new(20),
        transport: TransportType::Rc,
        flow_control: false,
        starting_psn: Psn::new(FIRST[1]),
        local_response_timeout: TimeCode::new(20),
        retry_count: 7,
        pkey: Pkey::DEFAULT,
        mtu: 3,
        rdc_exists: false,
        rnr_retry: 7,
        max_cm_retries: 15,
        srq: false,
        extended_transport: 0,
        primary: PathRecord::default(),
        alternate: PathRecord::default(),
        private_data: [0; message::limits::RAW_REQ],
    }
}

fn rep() -> Rep {
    Rep {
        local_comm_id: 2,
        remote_comm_id: 1,
        local_qkey: 0,
        local_qpn: QUEUE_PAIRS[1],
        vendor_id: 0,
        local_eecn: 0,
        starting_psn: Psn::new(FIRST[0]),
        responder_resources: 4,
        initiator_depth: 4,
        target_ack_delay: TimeCode::new(15),
        failover_accepted: 0,
        flow_control: false,
        rnr_retry: 7,
        srq: false,
        local_ca_guid: 6,
        private_data: [0; message::limits::REP],
    }
}

pub(crate) fn rej(reason: RejectReason) -> Rej {
    Rej {
        local_comm_id: 0,
        remote_comm_id: 1,
        rejected: Rejected::Req,
        info_len: 0,
        reason,
        info: [0; 72],
        private_data: [0; message::limits::REJ],
    }
}
