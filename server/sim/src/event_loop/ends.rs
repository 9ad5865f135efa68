//! Ends of leases, bounds, elections, learning modes and hand-overs, which faults are aimed at.

use doorman_openapi::{CLOCK_DRIFT, Moment};

use super::Simulation;
use crate::{limits::resource_id, scenario::steps::End};

impl Simulation {
    /// The time to an end of what is valid now.
    pub(super) fn seconds_to(&mut self, end: End) -> f64 {
        let ends = self.ends();
        let index = (end.choice * ends.len() as f64) as usize;
        let at = ends.get(index).copied().unwrap_or(self.time);
        (at.seconds_since(self.time) + end.offset).max(0.0)
    }

    /// When something ends that is valid now.
    fn ends(&mut self) -> Vec<Moment> {
        let time = self.time;
        let mut ends = Vec::new();
        for client in &self.clients {
            for usable in &client.usable {
                // A server books a lease for longer than its holder uses it.
                let booked = (CLOCK_DRIFT - 1.0) * self.longest_lease;
                ends.extend([usable.expires, usable.expires.after_seconds(booked)]);
            }
        }
        let resources: Vec<_> = (0..self.limits.len()).map(resource_id).collect();
        for server in &mut self.servers {
            ends.extend(server.ends(&resources, time));
        }
        for etcd in self.nodes.iter().filter_map(|it| it.etcd.as_ref()) {
            ends.extend(etcd.ends());
        }
        ends.retain(|end| time < *end && *end < Moment::NEVER);
        ends
    }
}
