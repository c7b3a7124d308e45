// SPDX-License-Identifier: MIT OR Apache-2.0

//! Byte streams in tokio tasks.

use std::io::{self, ErrorKind};

use iwarp::{Device, Options};
use iwarp_session::stream::Config;
use iwarp_session::{ByteStream, Listener};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional};

use crate::cancel_safety::{POLLS, after};
use crate::common::pattern;
use crate::common::sessions::streams;
use crate::tasks::run;

fn small() -> Config {
    Config::new().block_len(64).blocks(4)
}

fn pair() -> [ByteStream; 2] {
    streams([&small(), &small()])
}

#[test]
fn halves_work_in_tasks_of_their_own() {
    run(async {
        let device = Device::with_options(Options::default()).unwrap();
        let pd = device.alloc_pd();
        let listener = Listener::bind(&pd, "127.0.0.1:0").unwrap();
        let opening = tokio::spawn(small().connect(&pd, listener.local_addr().unwrap()));
        let server = ByteStream::accept(listener.accept().await.unwrap()).await.unwrap();
        let client = opening.await.unwrap().unwrap();
        let octets = [0, 1].map(|n| pattern(100_000, n));
        let mut tasks = tokio::task::JoinSet::new();
        for (n, stream) in [client, server].into_iter().enumerate() {
            let (mut read, mut write) = stream.into_split();
            let (ours, theirs) = (octets[n].clone(), octets[1 - n].clone());
            tasks.spawn(async move {
                for piece in ours.chunks(777) {
                    write.write_all(piece).await.unwrap();
                }
                write.shutdown().await.unwrap();
            });
            tasks.spawn(async move {
                let mut got = Vec::new();
                read.read_to_end(&mut got).await.unwrap();
                assert!(got == theirs);
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
    });
}

#[test]
fn a_proxy_copies_both_directions_and_passes_each_end_on() {
    run(async {
        let [mut client, mut left] = pair();
        let [mut right, server] = streams([&Config::default(), &small()]);
        let proxy = tokio::spawn(async move { copy_bidirectional(&mut left, &mut right).await });
        let echo = tokio::spawn(async move {
            let (mut read, mut write) = server.into_split();
            let count = copy(&mut read, &mut write).await.unwrap();
            // Only now, after the end of the question.
            write.write_all(b"and the end").await.unwrap();
            write.shutdown().await.unwrap();
            count
        });
        let octets = pattern(50_000, 2);
        let (read, write) = client.halves();
        let (sent, got) = tokio::join!(
            async {
                write.write_all(&octets).await?;
                write.shutdown().await
            },
            async {
                let mut got = Vec::new();
                read.read_to_end(&mut got).await.map(|_| got)
            },
        );
        sent.unwrap();
        assert!(got.unwrap() == [&octets[..], b"and the end"].concat());
        assert_eq!(echo.await.unwrap(), 50_000);
        assert_eq!(proxy.await.unwrap().unwrap(), (50_000, 50_011));
    });
}

#[test]
fn lines_are_read_from_the_blocks() {
    run(async {
        let [mut client, server] = pair();
        let mut lines = server.lines();
        client.write_all(b"one\ntw").await.unwrap();
        assert_eq!(lines.next_line().await.unwrap().unwrap(), "one");
        client.write_all(b"o\n").await.unwrap();
        assert_eq!(lines.next_line().await.unwrap().unwrap(), "two");
        client.shutdown().await.unwrap();
        assert!(lines.next_line().await.unwrap().is_none());
    });
}

#[test]
fn no_byte_is_lost_or_sent_twice_whenever_reads_and_writes_are_dropped() {
    for polls in POLLS {
        run(async move {
            let octets = pattern(5000, polls as u64);
            let [client, server] = pair();
            let (mut read, _their_write) = server.into_split();
            let (_our_read, mut write) = client.into_split();
            let writing = async {
                let mut count = 0;
                while count < octets.len() {
                    let piece = octets.len().min(count + 100);
                    if let Some(more) = after(polls, write.write(&octets[count..piece])).await {
                        count += more.unwrap();
                    }
                    tokio::task::yield_now().await;
                }
                while after(polls, write.shutdown()).await.is_none() {}
            };
            let reading = async {
                let (mut got, mut buf) = (Vec::new(), [0; 50]);
                loop {
                    match after(polls, read.read(&mut buf)).await.transpose().unwrap() {
                        Some(0) => break got,
                        Some(count) => got.extend_from_slice(&buf[..count]),
                        None => tokio::task::yield_now().await,
                    }
                }
            };
            let ((), got) = tokio::join!(writing, reading);
            assert!(got == octets, "{polls} polls");
        });
    }
}

#[test]
fn a_writer_waits_for_a_reader_and_hears_of_the_end() {
    run(async {
        let [mut client, mut server] = pair();
        let octets = pattern(1000, 3);
        let mut sent = 0;
        while let Some(more) = after(50, client.write(&octets[sent..])).await {
            sent += more.unwrap();
        }
        assert_eq!(sent, 4 * 64);
        let mut got = vec![0; sent];
        server.read_exact(&mut got).await.unwrap();
        assert!(got == octets[..sent]);
        // One that waits already.
        let writing = tokio::spawn(async move { client.write_all(&octets).await.unwrap_err() });
        server.read_exact(&mut got).await.unwrap();
        drop(server);
        assert_eq!(writing.await.unwrap().kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn a_thread_goes_on_where_a_task_gave_up() {
    run(async {
        let [mut client, mut server] = pair();
        let octets = pattern(1000, 4);
        let mut sent = 0;
        while let Some(more) = after(3, client.write(&octets[sent..])).await {
            sent += more.unwrap();
        }
        let writing = tokio::task::spawn_blocking({
            let octets = octets.clone();
            move || io::Write::write_all(&mut client, &octets[sent..]).unwrap()
        });
        let mut got = Vec::new();
        server.read_to_end(&mut got).await.unwrap();
        writing.await.unwrap();
        assert!(got == octets);
    });
}

#[test]
fn an_end_that_breaks_off_wakes_a_reader() {
    run(async {
        let [mut client, server] = pair();
        let reading = tokio::spawn(async move { client.read_u8().await.unwrap_err() });
        tokio::task::yield_now().await;
        server.abort();
        assert_eq!(reading.await.unwrap().kind(), ErrorKind::ConnectionReset);
    });
}
