// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sessions: memory as values.

use std::sync::atomic::Ordering;

use iwarp::Access;
use iwarp_session::typed::OutOfBounds;
use iwarp_session::{
    Block, Config, Exposed, ExposedSlice, OperationError, RemoteGrant, RemoteSlice, TypedBlock,
};
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::common::sessions::{SessionEnd, block_of, done, pair, pair_with, remote};

/// No padding, and no alignment beyond a byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Row {
    key: U16,
    value: U32,
}

fn row(n: u16) -> Row {
    Row { key: n.into(), value: (u32::from(n) * 1000).into() }
}

fn table(end: &SessionEnd, len: u16) -> (ExposedSlice<Row>, RemoteSlice<Row>) {
    let table = ExposedSlice::new(&end.pd, len.into(), Access::REMOTE).unwrap();
    for n in 0..len {
        table.set(n.into(), &row(n)).unwrap();
    }
    let octets = table.grant().to_octets();
    (table, RemoteGrant::from_octets(&octets).typed().unwrap())
}

#[test]
fn elements_are_read_and_written() {
    let (client, server) = pair(&Config::default());
    let (table, rows) = table(&server, 100);
    let session = &client.session;
    assert_eq!((rows.len(), rows.grant().len()), (100, 600));

    assert_eq!(done(rows.read(session, 42)).unwrap(), [row(42)]);
    assert_eq!(done(rows.read_range(session, 97..100)).unwrap(), [97, 98, 99].map(row));
    assert!(done(rows.read_range(session, 100..100)).unwrap().is_empty());
    let block = TypedBlock::new(&client.pd, 2).unwrap();
    let mut block = done(rows.read_into(session, 7, block)).unwrap();
    assert_eq!(*block, [7, 8].map(row));

    block[0] = row(1000);
    let block = done(rows.write(session, 20, block)).unwrap();
    assert_eq!(block[1], row(8));
    done(rows.write_inline(session, 99, &[row(2000)])).unwrap();
    // A row that was written before a Read is in place when it is answered.
    assert_eq!(done(rows.read(session, 99)).unwrap(), [row(2000)]);
    assert_eq!(table.read(19..23).unwrap(), [19, 1000, 8, 22].map(row));
    // Network order, as the type says.
    assert_eq!(done(rows.read(session, 1)).unwrap().as_bytes(), [0, 1, 0, 0, 3, 232]);
}

#[test]
fn elements_go_by_permits_batches_and_messages() {
    let (client, server, receive) =
        pair_with(&Config::default(), |pd, prepared| prepared.recv(Block::new(pd, 64).unwrap()));
    let (table, rows) = table(&server, 4);
    let permit = client.session.reserve().wait().unwrap();
    assert_eq!(done(rows.read(permit, 3)).unwrap(), [row(3)]);

    let mut batch = client.session.batch();
    let written = rows.write_inline(&mut batch, 0, &[row(5), row(6)]);
    let read = rows.read_range(&mut batch, 0..3);
    assert_eq!(table.get(0).unwrap(), row(0));
    batch.post().unwrap();
    done(written).unwrap();
    assert_eq!(done(read).unwrap(), [5, 6, 2].map(row));

    // A block of elements is a block to every operation.
    let mut some = TypedBlock::new(&client.pd, 3).unwrap();
    some.fill(row(9));
    let some = done(client.session.send(some)).unwrap();
    let message = done(receive).unwrap().block.typed::<Row>().unwrap();
    assert_eq!((&*message, some.into_block().len()), (&[row(9); 3][..], 18));
}

#[test]
fn accesses_outside_a_table_are_refused() {
    let (client, server) = pair(&Config::default());
    let (table, rows) = table(&server, 10);
    let session = &client.session;
    let outside = |error: OperationError| assert!(matches!(error, OperationError::OutsideGrant));
    outside(done(rows.read(session, 10)).unwrap_err().error);
    outside(done(rows.read(session, u64::MAX)).unwrap_err().error);
    outside(done(rows.read_range(session, 9..11)).unwrap_err().error);
    outside(done(rows.read_range(session, 0..u64::MAX)).unwrap_err().error);
    outside(done(rows.write_inline(session, 9, &[row(0); 2])).unwrap_err().error);
    let block = TypedBlock::new(&client.pd, 2).unwrap();
    let failure = done(rows.write(session, 9, block)).unwrap_err();
    assert_eq!(failure.block.unwrap().len(), 12);
    outside(failure.error);

    let part = rows.slice(2..5).unwrap();
    assert_eq!(done(part.read_range(session, 1..3)).unwrap(), [3, 4].map(row));
    outside(done(part.read(session, 3)).unwrap_err().error);
    let backwards = std::ops::Range { start: 5, end: 4 };
    assert!(rows.slice(9..11).is_none() && rows.slice(backwards).is_none());
    assert!(rows.slice(u64::MAX..u64::MAX).is_none() && rows.slice(10..10).unwrap().is_empty());

    let error = table.get(10).unwrap_err();
    assert!(matches!(error, OutOfBounds { first: 10, count: 1, len: 10, .. }), "{error:?}");
    assert_eq!(error.to_string(), "1 elements from 10 on, of 10");
    assert!(table.set(10, &row(0)).is_err() && table.write(8, &[row(0); 3]).is_err());
    assert!(table.read(5..11).is_err() && table.read(usize::MAX..usize::MAX).is_err());
    assert!(table.grant_of(5..11).is_err());
    let part = RemoteGrant::from_octets(&table.grant_of(4..6).unwrap().to_octets());
    assert_eq!(done(part.typed::<Row>().unwrap().read(session, 1)).unwrap(), [row(5)]);
    assert_eq!(table.read(0..10).unwrap(), (0..10).map(row).collect::<Vec<_>>());
}

#[test]
fn bytes_that_are_no_elements_are_given_back() {
    let (client, _server) = pair(&Config::default());
    let error = block_of(&client.pd, b"seven..").typed::<u32>().unwrap_err();
    assert_eq!(error.to_string(), "7 bytes at 0 are no elements of 4 bytes, aligned to 4");
    let mut block = error.given;
    block.set_range(1..5);
    let mut block = block.typed::<u32>().expect_err("they are not aligned").given;
    assert_eq!(&*block, b"even");
    block.set_range(4..4);
    let empty = block.typed::<u64>().unwrap();
    assert!(empty.is_empty());
    assert!(Block::new(&client.pd, 0).unwrap().typed::<u64>().unwrap().is_empty());
    let mut block = empty.into_block();
    block.set_len(4);
    assert_eq!(block.typed::<u32>().unwrap().as_bytes(), b"seve");

    let exposed = Exposed::new(&client.pd, 20, Access::REMOTE).unwrap();
    assert_eq!(remote(&exposed).typed::<u64>().unwrap_err().given, remote(&exposed));
    let exposed = exposed.typed::<u64>().unwrap_err().given;
    assert_eq!(exposed.typed::<U32>().unwrap().len(), 5);
    assert!(TypedBlock::<u64>::new(&client.pd, usize::MAX / 4).is_err());
}

#[test]
fn integers_of_8_bytes_are_atomics() {
    let (client, server) = pair(&Config::default());
    let exposed = server.session.expose(32, Access::REMOTE_ATOMIC).unwrap();
    let counters = exposed.typed::<u64>().unwrap();
    let grant = remote(counters.as_exposed());
    let remote = grant.typed::<u64>().unwrap();
    counters.atomic(3).unwrap().store(40, Ordering::SeqCst);
    assert_eq!(done(remote.fetch_add(&client.session, 3, 2)).unwrap(), 40);
    assert_eq!(done(remote.compare_swap(&client.session, 3, 42, 7)).unwrap(), 42);
    assert_eq!(counters.get(3).unwrap(), 7);
    assert!(counters.atomic(4).is_err());
    let outside = done(remote.fetch_add(&client.session, 4, 1)).unwrap_err();
    assert!(matches!(outside.error, OperationError::OutsideGrant));

    let signed = grant.typed::<i64>().unwrap();
    assert_eq!(done(signed.fetch_add(&client.session, 3, -10)).unwrap(), 7);
    assert_eq!(done(signed.compare_swap(&client.session, 3, -3, -4)).unwrap(), -3);
    assert_eq!(counters.get(3).unwrap().cast_signed(), -4);
}
