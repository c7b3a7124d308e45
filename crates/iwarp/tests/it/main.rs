// SPDX-License-Identifier: MIT OR Apache-2.0

//! The library from outside, in one process. A test that measures its process (descriptors,
//! threads, what is logged) runs once more in another (`process::passed_apart`). Tests that change
//! theirs, or that need the CPUs for themselves, are the files beside this folder.
//!
//! The others are `alloc` and `starved` (the allocator), `fork`, `floods` (both CPUs, the limit of
//! descriptors), and, in `iwarp-mem`, `footprint` (resident memory), `handlers` (signals) and
//! `loom`, which is another build.
//!
//! The files, and the claim that each proves:
//!
//! ```text
//! Connections
//!   addresses           a peer is found by name, and at the first of its addresses that answers
//!   startup             a wrong or odd frame of MPA start-up gets the answer that the RFCs ask for
//!   cm                  events of the connection manager come in their order at both ends
//!   cm_ids              ids hold addresses, move between channels, get queue pairs late
//!   families            a listener at all addresses hears its family, in each port space
//!   blocking            a blocked caller serves all connections, and is told what it waits for
//!   backlog             a listener of sessions keeps as many requests as it was told to
//!   rendezvous          queue pairs meet by (GID, number), without the connection manager
//!   rendezvous_hostile  strangers are not taken for the peer, displace none, learn nothing
//!   devices             each device of a process has its addresses, personality and wire
//!   device_ports        each port of a device has the addresses of its interface, and no others
//!   auto                both ends of a queue pair that may speak either protocol choose one
//!
//! Data
//!   operations          each operation works between two ends, in each framing
//!   bulk                much data arrives unchanged, in messages of odd sizes
//!   local_rings         within the host, a connection moves from TCP to shared memory unharmed
//!   local_shared        memory that processes share which may not read each other's
//!   local_direct        within the host, an end reads the peer's memory by itself, while it may
//!   local_mapped        there, it writes and updates memory that it maps by itself
//!   local_oracle        programs by lot find there what they find by TCP
//!   local_hosts         users and namespaces decide whether two processes share memory
//!   local_refused       refused system calls and shortages leave connections with TCP
//!   local_kills         a process survives its peers' ends, and keeps nothing of shared memory
//!   local_required      a connection that must move to shared memory says what is missing
//!   last_octet          a program that sees the last byte of a Write sees all of it
//!   memory              peers with the right to it reach registered memory, until its end
//!   vanished            memory that a program takes away fails one request, and no other
//!   queues              queues overflow, change their size, are shared, and free slots in time
//!   observer            an observer is told of all that happens, and queue pairs count it
//!   flush               memory of flushed requests is the program's again
//!   limits              completion queues have the entries that were granted, and no more
//!   permitted           the library does what the RFCs recommend or permit
//!   parking             as a RoCE device: completed means received, messages wait for receives
//!   piggyback           as a RoCE device: an acknowledgement goes out with the answer
//!   heard               as a RoCE device: a message counts though its receiver leaves at once
//!   unhindered          as a RoCE device: a message completes though the one behind it waits
//!
//! Threads that move the bytes
//!   progress            pollers, blocked callers and the worker move all that can move
//!   served              programs are served by their posts and polls, and else by the worker
//!   descriptor          a program that sleeps on a channel's descriptor is woken at once
//!   drive               an event loop moves connections, and the worker what it leaves
//!   polled_for_long     a program that polls for long, then sleeps or stops, loses no event
//!   cancel              a thread that is cancelled in a wait loses nothing of others
//!
//! Ends, and trouble
//!   ends                completed operations have arrived, and no thread waits for ever
//!   drops               handles go in any order and leave nothing behind
//!   leaks               connections leave nothing behind, and idle ones cost nothing
//!   fates               the log tells of each connection that it came, and how it ended
//!   patience            peers that live have any time, and peers that vanished are found
//!   hostile             a peer that breaks the rules gets its Terminate, and harms no other
//!   hostile_stream      a peer that breaks the framing, stalls or breaks off harms no other
//!
//! RoCE v2 and UDP
//!   rc                  queue pairs of the type RC work, over UDP and in memory
//!   rc_late             deadlines count from the departure of packets, if a thread comes late
//!   roce_floods         a queue pair works on in a flood of wrong packets, which leaves nothing
//!   ud                  queue pairs of the type UD work, over UDP and in memory
//!   ud_processes        they work in several processes, some of which are killed
//!   groups              each port of a device joins multicast groups at its own interface
//!   datagrams           ports carry packets with the headers and checksums that they need
//!   cm_packets          the connection manager connects over RoCE v2
//!   cm_datagrams        ids offer datagram services, and find them
//!   given_back          a process gives the RoCE port back after the last use
//!   share               processes share a UDP port, and stopped or killed ones harm no other
//!   share_hosts         sharing needs no rights, and keeps users and networks apart
//!   share_hostile       a broken process of the user neither stops nor fills the broker
//!
//! Sessions
//!   owned               blocks change hands, memory is exposed and borrowed, sessions end
//!   gather              parts of blocks, and several blocks, go out in one operation
//!   scatter             messages are received into several blocks and parts
//!   batches             operations that are collected are posted as one list
//!   credits             messages wait for receives of the peer, and no credit leaks
//!   places              callers wait for places, blocks and Reads, in turn
//!   receivers           receives stay posted, and the end of a session is told
//!   sender              a sink takes messages, and loses none that it took
//!   tasks               tasks of tokio lose, mistake and leak nothing
//!   cancel_safety       each future may be dropped after each number of polls
//!   driving             the task that drives a session leaves nothing undone
//!   byte_stream         byte streams work in threads
//!   byte_stream_tasks   byte streams work in tasks of tokio
//!   byte_stream_moved   byte streams leave bytes for each other in shared memory
//!   byte_stream_peers   byte streams refuse peers that are none, and break off with bad ones
//!   typed               memory holds values
//!   grants              grants keep their meaning through the formats of serde
//!   metrics             sessions count each operation once, by its kind
//!   reasons             both ends say why a session ended, and no error repeats its cause
//!
//! Other networks and protocols
//!   ports               all of it works without a socket, and over slow, cut and corrupt streams
//!   toy_port            a program may bring its own transport
//!   toy_ring            a program may bring a port without a descriptor
//!   toy_core            a program may bring its own protocol
//!   record_wing         DDP over records serves as a wire of the program's own, without MPA
//!   toy_wing            a wire of the program's own serves ids, listeners and meetings
//! ```

#[path = "../common/mod.rs"]
mod common;

mod addresses;
mod auto;
mod backlog;
mod batches;
mod blocking;
mod bulk;
mod byte_stream;
mod byte_stream_moved;
mod byte_stream_peers;
#[cfg(feature = "tokio")]
mod byte_stream_tasks;
mod cancel;
#[cfg(feature = "tokio")]
mod cancel_safety;
mod cm;
mod cm_datagrams;
mod cm_ids;
mod cm_packets;
mod credits;
mod datagrams;
mod descriptor;
mod device_ports;
mod devices;
mod drive;
#[cfg(feature = "tokio")]
mod driving;
mod drops;
mod ends;
mod families;
mod fates;
mod flush;
mod gather;
mod given_back;
#[cfg(feature = "serde")]
mod grants;
mod groups;
mod heard;
mod hostile;
mod hostile_stream;
#[path = "../../../iwarp-os/tests/it/hosts.rs"]
mod hosts;
mod last_octet;
mod leaks;
mod limits;
mod local_direct;
mod local_hosts;
mod local_kills;
mod local_mapped;
mod local_oracle;
mod local_refused;
mod local_required;
mod local_rings;
mod local_shared;
mod memory;
mod metrics;
mod observer;
mod operations;
mod owned;
mod parking;
mod patience;
mod permitted;
mod piggyback;
mod places;
mod polled_for_long;
mod ports;
mod progress;
mod queues;
mod rc;
mod rc_late;
mod reasons;
mod receivers;
mod record_wing;
mod rendezvous;
mod rendezvous_hostile;
mod roce_floods;
mod scatter;
#[cfg(feature = "tokio")]
mod sender;
mod served;
mod share;
mod share_hostile;
mod share_hosts;
mod startup;
#[cfg(feature = "tokio")]
mod tasks;
mod toy_core;
mod toy_port;
mod toy_ring;
mod toy_wing;
#[cfg(feature = "zerocopy")]
mod typed;
mod ud;
mod ud_processes;
mod unhindered;
mod vanished;
