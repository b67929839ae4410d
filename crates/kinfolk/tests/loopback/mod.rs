//! Machines in this process, through which nothing passes but bytes.

use kinfolk::Result;
use kinfolk::data::{Client, DataShape};
use kinfolk::federation::client::node::{Node, Rows};
use kinfolk::federation::client::site::Site;
use kinfolk::federation::engines::remote::{Delivery, Line, MessageKind, Transport};
use std::sync::{Arc, Mutex};

/// Machines in this process, through which nothing passes but bytes: the proof that a method works over a wire. Each
/// message is answered by a new site, as with Flower by a new process.
pub struct Loopback {
    sites: Vec<(MakeSite, Vec<u8>)>,
}

/// Makes the site that answers the next message.
pub type MakeSite = Box<dyn Fn() -> Result<Site> + Send>;

impl Loopback {
    /// A way to these machines, numbered from 0.
    pub fn line(sites: Vec<MakeSite>) -> Line {
        let sites = sites.into_iter().map(|site| (site, Vec::new())).collect();
        Arc::new(Mutex::new(Box::new(Self { sites })))
    }

    /// A way to these clients, on so many machines. They answer for any number of rows: what is looked at is the wire.
    #[allow(dead_code)] // Not every test has clients at hand.
    pub fn among(clients: &[Client], shape: DataShape, machines: usize) -> Line {
        let cut = |part: usize| clients.len() * part / machines;
        let site = |part: usize| -> MakeSite {
            let own = clients[cut(part)..cut(part + 1)].to_vec();
            let node = Node::new(Rows::Given(own, shape)).with_minimum_rows(1);
            Box::new(move || Site::new(node.clone(), 1))
        };
        Self::line((0..machines).map(site).collect())
    }
}

impl Transport for Loopback {
    fn machines(&mut self) -> Result<Vec<u64>> {
        Ok((0..self.sites.len() as u64).collect())
    }

    fn exchange(&mut self, messages: Vec<(u64, Vec<u8>)>, _: MessageKind) -> Result<Vec<(u64, Delivery)>> {
        let mut deliver = |(number, message): (u64, Vec<u8>)| {
            let (make, state) = self.sites.get_mut(number as usize)?;
            let delivery = make().and_then(|mut site| site.answer(&message, state)).map(|(reply, after)| {
                *state = after;
                reply
            });
            Some((number, delivery.map_err(|error| error.told())))
        };
        Ok(messages.into_iter().filter_map(&mut deliver).collect())
    }
}
