// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receivers of sessions, and what sends as the peer's receiver has receives.

use std::sync::Arc;

use crate::balance::Balance;
use crate::{Credits, OperationError, Pools, Receiver, Session, Unconnected};

impl Unconnected {
    /// A receiver whose receives are there before the peer can send: up to `depth` of them, with
    /// blocks of a pool, or of several pools one block each.
    ///
    /// ```
    /// # use iwarp_session::{BlockPool, Config, Listener, Session};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pd = iwarp::Device::open()?.alloc_pd();
    /// # let listener = Listener::bind(&pd, "127.0.0.1:0")?;
    /// # let connecting = Session::connect(&pd, listener.local_addr().ok_or("no address")?);
    /// let (headers, bodies) = (BlockPool::new(&pd, 8, 16)?, BlockPool::new(&pd, 4096, 16)?);
    /// let prepared = Config::default().prepare(&pd)?;
    /// let mut receiver = prepared.receiver([&headers, &bodies], 16)?;
    /// let session = prepared.accept(listener.accept().wait()?).wait()?;
    /// # let client = connecting.wait()?;
    /// # client.send_inline(b"8 bytes.and a body").wait()?;
    /// let [header, body] = receiver.recv().wait()?.ok_or("closed")?.block;
    /// assert_eq!((&*header, &*body), (&b"8 bytes."[..], &b"and a body"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`OperationError::OtherDomain`]; [`OperationError::TooManyBlocks`] for more pools than
    /// [`Config::max_blocks`](crate::Config::max_blocks), and where a pool is among them
    /// more often than it has blocks; [`OperationError::Wait`] in a forked child.
    pub fn receiver<P: Pools>(
        &self,
        pools: P,
        depth: usize,
    ) -> Result<Receiver<P::Blocks>, OperationError> {
        Receiver::new(&self.handle, pools.into_stock(), depth, None)
    }

    /// A [`Receiver`] that lets the peer know of its receives, and what sends as the peer's
    /// Receiver has some: up to `depth` messages may be on their way to this end. The peer has to
    /// make one, too. It takes two blocks of the pool, and two of the
    /// [`max_recvs`](crate::Config::max_recvs), more than `depth`.
    ///
    /// ```
    /// # use iwarp_session::{BlockPool, Config, Listener, Session};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let pd = iwarp::Device::open()?.alloc_pd();
    /// # let listener = Listener::bind(&pd, "127.0.0.1:0")?;
    /// # let addr = listener.local_addr().ok_or("no address")?;
    /// # let client = std::thread::spawn(move || {
    /// #     let pd = iwarp::Device::open().unwrap().alloc_pd();
    /// #     let pool = BlockPool::new(&pd, 64, 6).unwrap();
    /// #     let prepared = Config::default().prepare(&pd).unwrap();
    /// #     let (credits, receiver) = prepared.credited(&pool, 4).unwrap();
    /// #     let session = prepared.connect(addr).wait().unwrap();
    /// #     for _ in 0..1000 {
    /// #         credits.reserve().wait().unwrap().send_inline(b"hello").wait().unwrap();
    /// #     }
    /// #     session.close().wait().unwrap();
    /// # });
    /// let pool = BlockPool::new(&pd, 4096, 6)?;
    /// let prepared = Config::default().prepare(&pd)?;
    /// let (_credits, mut receiver) = prepared.credited(&pool, 4)?;
    /// let session = prepared.accept(listener.accept().wait()?).wait()?;
    /// let mut count = 0;
    /// while let Some(message) = receiver.recv().wait()? {
    ///     assert_eq!(&*message.block, b"hello");
    ///     count += 1;
    /// }
    /// assert_eq!(count, 1000); // with four receives
    /// # client.join().unwrap();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Self::receiver`].
    pub fn credited<P: Pools>(
        &self,
        pools: P,
        depth: usize,
    ) -> Result<(Credits, Receiver<P::Blocks>), OperationError> {
        let (credits, receiver) = self.credited_later(pools, depth)?;
        let feed = Arc::downgrade(receiver.feed());
        self.handle.when_connected(feed);
        Ok((credits, receiver))
    }

    /// As [`Self::credited`], for ends that look at each other first: this one says nothing before
    /// [`Credits::begin`], unless the peer does.
    pub(super) fn credited_later<P: Pools>(
        &self,
        pools: P,
        depth: usize,
    ) -> Result<(Credits, Receiver<P::Blocks>), OperationError> {
        let balance = Arc::new(Balance::default());
        let credits = Credits::new(Arc::clone(&self.handle), Arc::clone(&balance));
        let stock = pools.into_stock();
        let receiver = Receiver::new(&self.handle, stock, depth.max(1), Some(balance))?;
        Ok((credits, receiver))
    }
}

impl Session {
    /// As [`Unconnected::receiver`], for a peer that does not send before it is told to.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn receiver<P: Pools>(
        &self,
        pools: P,
        depth: usize,
    ) -> Result<Receiver<P::Blocks>, OperationError> {
        Receiver::new(&self.handle, pools.into_stock(), depth, None)
    }
}
