//! The world put before the referee: after every event, and once it has come to rest.

use super::{
    Broken,
    referee::{self, Finding},
    schedule::Event,
    terms::{self, Terms},
    wire::Party,
    world::World,
};

impl World {
    /// What all believe is within what there is.
    pub(super) fn judge(&mut self) -> Result<(), Finding> {
        for position in 0..self.terms.len() {
            let clients = self
                .clients
                .iter()
                .map(|client| client.beliefs[position].at(self.now));
            let node = self
                .node
                .as_ref()
                .map_or(0.0, |node| node.believes(position, self.now));
            let believed = clients.sum::<f64>() + node;
            let terms = &self.terms[position];
            self.referee
                .judge_sum(position, terms, believed, self.now)?;
        }
        Ok(())
    }

    /// Nobody is left nothing while a part could be kept.
    pub(super) fn starve(&mut self, starved: Vec<usize>, who: &Party) {
        for position in starved {
            if self.terms[position].capacity > 0.0 {
                let resource = terms::resource(position);
                let what = format!("{who:?} held a part of {resource} and is left nothing");
                self.starved = Some((Broken::Part, what));
            }
        }
    }

    pub(super) fn settle(&mut self) {
        for index in 0..self.clients.len() {
            for position in 0..self.terms.len() {
                if self.clients[index].wants[position].is_some() {
                    self.want(index, position);
                }
            }
        }
        for position in 0..self.terms.len() {
            self.want_of_node(position);
        }
        let slowest = |of: fn(&Terms) -> f64| self.terms.iter().map(of).fold(0.0, f64::max);
        // One level more takes two more: the clients behind a node give back to it before it gives back.
        let refreshes = if self.node.is_some() { 5.0 } else { 3.0 };
        let settled =
            refreshes * slowest(|terms| terms.refresh) + slowest(|terms| terms.minimum_refresh);
        self.after(settled + 1.0, Event::Settled);
    }

    /// After three refreshes without a fault and with the same demand everyone has their exact share.
    pub(super) fn judge_rest(&self) -> Result<(), Finding> {
        for (position, terms) in self.terms.iter().enumerate() {
            let mut demands = Vec::new();
            let mut has = Vec::new();
            for client in &self.clients {
                if let Some(wants) = client.wants[position] {
                    demands.push((1.0, wants));
                    has.push(client.beliefs[position].at(self.now));
                }
            }
            if let Some(node) = &self.node
                && let Some((clients, wants)) = node.wants[position]
            {
                demands.push((clients as f64, wants));
                has.push(node.believes(position, self.now));
            }
            referee::judge_shares(position, &has, &terms.shares(&demands))?;
        }
        Ok(())
    }
}
