// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sessions: parts of blocks, and several blocks in one operation.

use iwarp::Access;
use iwarp_session::{Block, BlockPool, Config, OperationError, SendFlags};

use crate::common::sessions::{SessionEnd, block_of, done, pair, pair_with, remote};
use crate::common::{pattern, until};

/// Blocks of these bytes.
fn blocks<const N: usize>(end: &SessionEnd, contents: [&[u8]; N]) -> [Block; N] {
    contents.map(|octets| block_of(&end.pd, octets))
}

#[test]
fn a_block_is_the_part_that_was_set() {
    let (client, _server) = pair(&Config::default());
    let mut block = block_of(&client.pd, b"0123456789");
    assert_eq!(block.range(), 0..10);
    block.set_range(3..7);
    assert_eq!((&*block, block.capacity()), (&b"3456"[..], 10));
    block.copy_from_slice(b"dcba");
    block.set_range(10..10);
    assert!(block.is_empty());
    block.set_len(10);
    assert_eq!(&*block, b"012dcba789");
    block.set_range(5..8);
    block.fill_from(b"anew");
    assert_eq!((&*block, block.range()), (&b"anew"[..], 0..4));
}

#[test]
fn a_part_of_a_block_is_sent_written_and_filled() {
    let (client, server, receive) = pair_with(&Config::default(), |pd, prepared| {
        let mut block = Block::new(pd, 16).unwrap();
        // A receive fills all of it, from its start on.
        block.set_range(9..9);
        prepared.recv(block)
    });
    let memory = server.session.expose(16, Access::REMOTE).unwrap();
    let grant = remote(&memory);
    let mut block = block_of(&client.pd, b"0123456789");
    block.set_range(2..6);
    let block = done(client.session.send(block)).unwrap();
    assert_eq!((&*block, block.range()), (&b"2345"[..], 2..6));
    let received = done(receive).unwrap().block;
    assert_eq!((&*received, received.range()), (&b"2345"[..], 0..4));

    let mut block = done(client.session.write(block, &grant, 1)).unwrap();
    block.set_range(7..9);
    let block = done(client.session.write(block, &grant, 5)).unwrap();
    let seen = done(client.session.read(&grant, 0, Block::new(&client.pd, 16).unwrap())).unwrap();
    assert_eq!(&*seen, b"\x00234578\0\0\0\0\0\0\0\0\0");

    memory.write_at(0, b"abcdefghijklmnop");
    let mut block = done(client.session.read(&grant, 14, block)).unwrap();
    assert_eq!((&*block, block.range()), (&b"op"[..], 7..9));
    block.set_len(10);
    assert_eq!(&*block, b"0123456op9", "what is beside the part stays");
}

#[test]
fn several_blocks_are_one_message() {
    let (client, _server, receives) = pair_with(&Config::default(), |pd, prepared| {
        [(); 3].map(|()| prepared.recv(Block::new(pd, 1 << 20).unwrap()))
    });
    let [first, second, third] = receives;
    let message = pattern(300_000, 7);
    let (start, rest) = message.split_at(100);
    let (middle, end) = rest.split_at(200_000);
    let sent = client.session.send(blocks(&client, [start, b"", middle, end]));
    let [a, b, c, d] = done(sent).unwrap();
    assert!(*a == *start && b.is_empty() && *c == *middle && *d == *end);
    assert!(*done(first).unwrap().block == message);

    let flags = SendFlags::new().solicited(true);
    let permit = client.session.reserve().wait().unwrap();
    let back = done(permit.send_with(vec![d, a], flags)).unwrap();
    assert_eq!(back.iter().map(|block| block.len()).collect::<Vec<_>>(), [end.len(), 100]);
    let received = done(second).unwrap();
    assert!(received.solicited && *received.block == [end, start].concat());

    assert!(done(client.session.send(Vec::new())).unwrap().is_empty());
    assert!(done(third).unwrap().block.is_empty());
}

#[test]
fn several_blocks_are_one_range_of_the_peers_memory() {
    let (client, server, receive) =
        pair_with(&Config::default(), |pd, prepared| prepared.recv(Block::new(pd, 0).unwrap()));
    let memory = server.session.expose(300_000, Access::REMOTE).unwrap();
    let grant = remote(&memory);
    let mut body = block_of(&client.pd, &pattern(200_000, 3));
    body.set_range(50_000..150_000);
    let header = block_of(&client.pd, b"header");
    let written = client.session.write_immediate([header, body], &grant, 10, *b"done");
    let [header, body] = done(written).unwrap();
    assert_eq!(done(receive).unwrap().immediate.unwrap()[..4], *b"done");
    let seen = memory.to_vec();
    assert!(seen[10..16] == *b"header" && seen[16..100_016] == *body);

    let (mut header, mut body) = (header, body);
    let expected = body.to_vec();
    header.fill(0);
    body.fill(0);
    body.set_range(10_000..110_000);
    let mut back = done(client.session.read(&grant, 10, vec![header, body])).unwrap();
    let (mut body, header) = (back.pop().unwrap(), back.pop().unwrap());
    assert!(*header == *b"header" && *body == expected);
    body.set_len(10_000);
    assert_eq!(*body, pattern(200_000, 3)[..10_000]);
}

#[test]
fn a_refused_send_gives_all_blocks_back_in_their_order() {
    let (client, server) = pair(&Config::new().max_blocks(3).max_sends(4));
    let memory = server.session.expose(8, Access::REMOTE).unwrap();
    let grant = remote(&memory);
    let names: [&[u8]; 4] = [b"one", b"two", b"three", b"four"];
    let all = || blocks(&client, names);
    let same = |blocks: &[Block]| blocks.iter().map(|block| &**block).eq(names);

    let many = done(client.session.send(all())).unwrap_err();
    assert!(matches!(many.error, OperationError::TooManyBlocks), "{many:?}");
    assert!(same(&many.blocks) && many.block.is_none());
    let permit = client.session.reserve().wait().unwrap();
    let many = done(permit.read(&grant, 0, Vec::from(all()))).unwrap_err();
    assert!(matches!(many.error, OperationError::OutsideGrant) && same(&many.blocks));

    let mut mixed = all();
    mixed[2] = block_of(&server.pd, b"three");
    let foreign = done(client.session.send(mixed)).unwrap_err();
    assert!(matches!(foreign.error, OperationError::OtherDomain) && same(&foreign.blocks));

    // Each gave its place back, and the connection is as good as before.
    let permits: Vec<_> = std::iter::from_fn(|| client.session.try_reserve()).collect();
    assert_eq!(permits.len(), 4);
    let full = done(client.session.write(blocks(&client, [b"a", b"b"]), &grant, 0)).unwrap_err();
    assert!(matches!(full.error, OperationError::QueueFull));
    assert_eq!(full.blocks.iter().map(|block| block[0]).collect::<Vec<_>>(), *b"ab");
    drop(permits);
    let three = blocks(&client, [b"ab", b"cd", b"efgh"]);
    done(client.session.write(three, &grant, 0)).unwrap();
    done(client.session.read(&grant, 0, Block::new(&client.pd, 8).unwrap())).unwrap();
    assert_eq!(memory.to_vec(), b"abcdefgh");
}

#[test]
fn several_blocks_go_back_to_their_pools() {
    let (client, server) = pair(&Config::default());
    let memory = server.session.expose(1024, Access::REMOTE).unwrap();
    let grant = remote(&memory);
    let pools = [64, 128].map(|len| BlockPool::new(&client.pd, len, 2).unwrap());
    let some = || pools.each_ref().map(|pool| pool.take().wait().unwrap());
    drop(client.session.read(&grant, 0, some()));
    drop(client.session.write(Vec::from(some()), &grant, 0));
    until("the blocks", || pools.iter().all(|pool| pool.available() == 2).then_some(()));

    server.session.abort();
    until("the end", || (!client.session.is_connected()).then_some(()));
    let failure = done(client.session.send(some())).unwrap_err();
    assert!(matches!(failure.error, OperationError::Disconnected), "{failure:?}");
    assert_eq!(failure.blocks.iter().map(|block| block.len()).collect::<Vec<_>>(), [64, 128]);
    drop(failure);
    assert!(pools.iter().all(|pool| pool.available() == 2));
}
