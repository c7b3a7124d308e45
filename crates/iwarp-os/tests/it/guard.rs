// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registered memory straight to and from a socket.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use iwarp_mem::{Buffer, Guard, MemoryTable, Scope};
use iwarp_os::poll::wait_readable;
use iwarp_os::{IoPart, IoPartMut, Ipv6Listen, TcpSocket};
use iwarp_types::{Access, Accessor, PdId, QpId, RemoteAccess, Sge, Stag, TaggedOffset};

const WHO: Accessor = Accessor { pd: PdId(1), qp: QpId(1) };
const LIMIT: Option<Duration> = Some(Duration::from_secs(20));

fn pair() -> (TcpSocket, TcpSocket) {
    let listener = TcpSocket::listen((Ipv4Addr::LOCALHOST, 0).into(), 1, Ipv6Listen::Only).unwrap();
    let client = TcpSocket::connect_start(None, listener.local_addr().unwrap()).unwrap();
    assert_eq!(wait_readable([listener.as_fd()], LIMIT).unwrap(), [true]);
    let server = listener.accept().unwrap().0;
    client.finish_connect().unwrap();
    (client, server)
}

fn registered(table: &MemoryTable, len: usize, access: Access) -> (Arc<Buffer>, Stag) {
    let buffer = Arc::new(Buffer::new(len));
    let stag = table.register_buffer(WHO.pd, &buffer, access, Scope::Domain).unwrap();
    (buffer, stag)
}

fn local(table: &MemoryTable, lkey: Stag, addr: u64, length: u32, write: bool) -> Guard<'_> {
    table.guard_local(WHO, Sge { addr, length, lkey }, write).unwrap()
}

#[test]
fn octets_go_from_one_region_into_another() {
    let table = MemoryTable::new();
    let (source, from) = registered(&table, 100, Access::LOCAL_READ);
    let (sink, to) = registered(&table, 100, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let bytes: Vec<u8> = (1..=100).collect();
    source.write_at(0, &bytes);
    let (client, server) = pair();

    let header = [200; 4];
    let guard = local(&table, from, 10, 50, false);
    let parts = [IoPart::new(&header), IoPart::from(&guard).skip(5)];
    assert_eq!(client.send(&parts, false).unwrap(), 49);
    drop(guard);

    assert_eq!(wait_readable([server.as_fd()], LIMIT).unwrap(), [true]);
    let mut staging = [0; 4];
    let guard = table.guard_remote(WHO, to, TaggedOffset(20), 45, RemoteAccess::Write).unwrap();
    let mut parts = [IoPartMut::new(&mut staging), IoPartMut::from(&guard)];
    assert_eq!(server.recv(&mut parts).unwrap(), 49);
    drop(guard);

    assert_eq!(staging, header);
    let mut expected = vec![0; 100];
    expected[20..65].copy_from_slice(&bytes[15..60]);
    assert_eq!(sink.to_vec(), expected);
    table.deregister(to).unwrap();
}

#[test]
#[should_panic(expected = "made for reading")]
fn a_guard_for_reading_takes_no_octets() {
    let table = MemoryTable::new();
    let (_buffer, stag) = registered(&table, 8, Access::LOCAL_WRITE);
    let _ = IoPartMut::from(&local(&table, stag, 0, 8, false));
}
