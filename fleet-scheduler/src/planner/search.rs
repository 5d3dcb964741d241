//! The search for the first machine that accepts a unit, in the unit's order of machines.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::assign::MAX_PROBES;
use crate::index::{Cluster, ClusterView, MachineNo, OrderNo, PatternNo, RankContext, UnitNo};
use crate::policy::View;
use crate::policy::{Candidate, Ranking};

impl Cluster {
    /// Returns the first machine that accepts a unit. The unit must not be tied to others and must
    /// not replace others.
    pub(super) fn find_machine(&mut self, unit: UnitNo) -> Option<MachineNo> {
        if let Some(pin) = self.class(unit).pin.some() {
            let present = self.machines.slots[pin].is_present();
            return (present && self.denial(unit, pin).is_none()).then_some(pin);
        }
        if !self.policy.scores.is_empty() {
            let all = self.ranked_machines(unit);
            return all.into_iter().find(|machine| self.denial(unit, *machine).is_none());
        }
        if !self.policy.rules.is_empty() {
            return self.search(unit, |index, machine| index.denial(unit, machine).is_none());
        }
        if let Some(found) = self.find_among_few(unit) {
            return found;
        }
        if let Some(found) = self.find_among_loosened(unit) {
            return found;
        }
        self.search_for_class(unit)
    }

    /// Searches only the machines that may accept a unit's class although they refused it at the
    /// last search. Returns `Some(None)` if none of them accepts the unit.
    ///
    /// Returns `None` if this shortcut is not possible:
    ///
    /// - No search for the class has failed yet.
    /// - More than `MAX_PROBES` machines have changed since the last failed search.
    /// - The change log no longer reaches back to that search.
    fn find_among_loosened(&mut self, unit: UnitNo) -> Option<Option<MachineNo>> {
        let number = self.units.slots[unit].class;
        let loosened = self.orders.loosened_machines.since(self.classes.slots[number].refused?)?;
        if loosened.len() > MAX_PROBES {
            return None;
        }
        let is_present = |m: &MachineNo| self.machines.slots[*m].is_present();
        let takes = |machine: &MachineNo| self.denial(unit, *machine).is_none();
        let taking = loosened.iter().copied().filter(is_present).filter(takes);
        let taking: Vec<MachineNo> = taking.collect();
        if taking.is_empty() {
            let (filter, context) = (self.classes.slots[number].filter, self.rank_context());
            let still_hopeless = loosened.iter().all(|machine| !context.takes(filter, *machine));
            let class = &mut self.classes.slots[number];
            class.refused = Some(self.orders.loosened_machines.end());
            class.filtered_out =
                class.filtered_out.filter(|_| still_hopeless).map(|_| self.orders.facts_version);
            return Some(None);
        }
        let (order, template) = self.refreshed_order(unit);
        let (order, context) = (&self.orders.slots[order], self.rank_context());
        Some(taking.into_iter().min_by_key(|machine| order.sort_key(*machine, template, context)))
    }

    /// Returns the first machine, in the machine order of a unit's class, that accepts the unit. If
    /// all machines refuse the unit, records for the class that they do, and returns `None`.
    fn search_for_class(&mut self, unit: UnitNo) -> Option<MachineNo> {
        let number = self.units.slots[unit].class;
        let own = self.classes.slots[number].private_order;
        let shared = self.order(unit);
        let order = own.some().unwrap_or(shared);
        let mut skipped = Vec::new();
        let template = self.classes.slots[number].template;
        let takes = |index: &mut Self, machine| index.denial(unit, machine).is_none();
        let is_spared = self.is_spared(unit, order);
        let reserves = !self.class(unit).requirements.reserve.is_zero();
        let found = if is_spared {
            self.scan(order, &mut skipped, takes)
        } else if reserves && self.orders.slots[order].rooms_mut().is_some() {
            self.first_with_room(unit, (order, template), &mut skipped)
        } else {
            self.first_accepting((order, template), &mut skipped, takes)
        };
        let class = &mut self.classes.slots[number];
        if found.is_none() {
            class.refused = Some(self.orders.loosened_machines.end());
            // A private order omits refusals that only a change of the machine can lift.
            let order = &self.orders.slots[order];
            let none_takes = skipped.is_empty() && order.len() == 0 && !order.is_private();
            class.filtered_out = none_takes.then_some(self.orders.facts_version);
        } else if own == OrderNo::NONE && !is_spared {
            class.skips += skipped.len();
            if class.skips > self.orders.slots[shared].len() + 2 * MAX_PROBES {
                class.private_order = self.orders.acquire_private(shared).unwrap_or_default();
            }
        }
        if !self.orders.slots[order].is_private() && !is_spared {
            self.put_back(order, &skipped);
            let (orders, context) = self.with_context();
            let order = &mut orders.slots[order];
            if reserves && skipped.len() >= MAX_PROBES && order.rooms_mut().is_none() {
                order.index_rooms(context);
            }
        }
        found
    }

    /// Returns the first machine, in a machine order with an index of rooms, that accepts a unit.
    /// Adds each machine that refuses to `skipped`, and leaves it in the order.
    fn first_with_room(
        &mut self,
        unit: UnitNo,
        (order, template): (OrderNo, PatternNo),
        skipped: &mut Vec<MachineNo>,
    ) -> Option<MachineNo> {
        self.refresh(order, template);
        let mut rooms = self.orders.slots[order].rooms_mut().take()?;
        let machines = &self.orders.slots[order];
        let wants = (template, self.class(unit).requirements.reserve);
        let takes = |machine| {
            let takes = self.denial(unit, machine).is_none();
            skipped.extend(Some(machine).filter(|_| !takes));
            takes
        };
        let found = machines.first_with_room(&mut rooms, wants, self.rank_context(), takes);
        *self.orders.slots[order].rooms_mut() = Some(rooms);
        found
    }

    /// Returns whether the order serves a single unit and is not built.
    fn is_spared(&self, unit: UnitNo, order: OrderNo) -> bool {
        self.class(unit).users == 1 && self.orders.slots[order].is_spared()
    }

    /// Returns the first machine for which `takes` returns true, like
    /// [`first_accepting`](Self::first_accepting), but without building the order.
    fn scan(
        &mut self,
        order: OrderNo,
        skipped: &mut Vec<MachineNo>,
        mut takes: impl FnMut(&mut Self, MachineNo) -> bool,
    ) -> Option<MachineNo> {
        let (order, context) = (&self.orders.slots[order], self.rank_context());
        let few = self.filters.few_candidates(order.filter(), &self.machines);
        let all = few.unwrap_or_else(|| self.machines.present().collect()).into_iter();
        let passing = all.filter(|machine| context.takes(order.filter(), *machine));
        let ranked = passing
            .map(|machine| Reverse((order.sort_key(machine, PatternNo::NONE, context), machine)));
        let mut ranked: BinaryHeap<_> = ranked.collect::<Vec<_>>().into();
        while let Some(Reverse((_, machine))) = ranked.pop() {
            if takes(self, machine) {
                return Some(machine);
            }
            skipped.push(machine);
        }
        None
    }

    /// Returns the first machine for which `takes` returns true. The machines come in the machine
    /// order that the unit's class shares with other classes.
    pub(super) fn search(
        &mut self,
        unit: UnitNo,
        takes: impl FnMut(&mut Self, MachineNo) -> bool,
    ) -> Option<MachineNo> {
        let order = self.order(unit);
        let mut skipped = Vec::new();
        if self.is_spared(unit, order) {
            return self.scan(order, &mut skipped, takes);
        }
        let template = self.class(unit).template;
        let found = self.first_accepting((order, template), &mut skipped, takes);
        self.put_back(order, &skipped);
        found
    }

    /// Returns the first machine in a machine order for which `takes` returns true, or `None` if
    /// there is none. `Spread=` counts the instances of `template`.
    ///
    /// Each machine that refuses is removed from the machine order and added to `skipped`; the
    /// caller may insert it again. If several classes share the machine order, at most `MAX_PROBES`
    /// machines are removed. The remaining machines are then tried without being removed.
    fn first_accepting(
        &mut self,
        (order, template): (OrderNo, PatternNo),
        skipped: &mut Vec<MachineNo>,
        mut takes: impl FnMut(&mut Self, MachineNo) -> bool,
    ) -> Option<MachineNo> {
        self.refresh(order, template);
        loop {
            let (orders, context) = self.with_context();
            let machine = orders.slots[order].first(template, context)?;
            if skipped.len() >= MAX_PROBES && !orders.slots[order].is_private() {
                let rest = orders.slots[order].all(template, context);
                return rest.into_iter().find(|machine| takes(self, *machine));
            }
            if takes(self, machine) {
                return Some(machine);
            }
            self.orders.slots[order].remove(machine);
            skipped.push(machine);
        }
    }

    fn put_back(&mut self, order: OrderNo, skipped: &[MachineNo]) {
        let (orders, context) = self.with_context();
        skipped.iter().for_each(|machine| orders.slots[order].insert(*machine, context));
    }

    /// Returns the first of the [ranked machines](Self::ranked_machines) of a unit, or `None` if
    /// custom scores require ranking all of them.
    pub(super) fn top_machine(&mut self, unit: UnitNo) -> Option<MachineNo> {
        if !self.policy.scores.is_empty() {
            return None;
        }
        let (order, template) = self.refreshed_order(unit);
        let (orders, context) = self.with_context();
        orders.slots[order].first(template, context)
    }

    /// Returns all machines that pass the filter of a unit, in the order in which the unit tries
    /// them.
    pub(super) fn ranked_machines(&mut self, unit: UnitNo) -> Vec<MachineNo> {
        let (order, template) = self.refreshed_order(unit);
        let (order, context) = (&self.orders.slots[order], self.rank_context());
        let all = order.all(template, context);
        if self.policy.scores.is_empty() {
            return all;
        }
        let mut all: Vec<_> = all
            .into_iter()
            .map(|machine| {
                let (score, rank) = order.sort_key(machine, template, context);
                (Reverse(self.custom_score(unit, machine).saturating_sub(score)), rank, machine)
            })
            .collect();
        all.sort_unstable();
        all.into_iter().map(|(_, _, machine)| machine).collect()
    }

    /// Returns the sum of the custom scores of a machine.
    pub(super) fn custom_score(&self, unit: UnitNo, machine: MachineNo) -> i64 {
        let requirements = &self.class(unit).requirements;
        let candidate = Candidate { name: self.units.name(unit), requirements };
        let machine = self.machines.slots[machine].machine();
        let source = ClusterView { index: self, leaving: &[] };
        let view = View::new(&source);
        let scores = self.policy.scores.iter();
        scores.map(|score| score.score(&view, candidate, machine)).fold(0, i64::saturating_add)
    }

    /// Returns the shared machine order of a unit's class.
    fn order(&mut self, unit: UnitNo) -> OrderNo {
        let number = self.units.slots[unit].class;
        let class = &self.classes.slots[number];
        if let Some(order) = class.order.some() {
            return order;
        }
        let wants = class.requirements.clone();
        let template = class.template;
        let spread = if template == PatternNo::NONE { &[] } else { &wants.spread[..] };
        let ranks = self.policy.ranking == Ranking::Spread;
        let ranked = if ranks { template } else { PatternNo::NONE };
        let order = self.orders.acquire(class.filter, &wants.prefer, spread, ranked);
        self.classes.slots[number].order = order;
        order
    }

    /// Brings the machine order of a unit's class up to date. Returns the machine order and the
    /// unit's template.
    pub(super) fn refreshed_order(&mut self, unit: UnitNo) -> (OrderNo, PatternNo) {
        let (order, template) = (self.order(unit), self.class(unit).template);
        self.refresh(order, template);
        (order, template)
    }

    fn refresh(&mut self, order: OrderNo, template: PatternNo) {
        let filter = self.orders.slots[order].filter();
        self.filters.cache_verdicts(filter, &self.machines);
        let (orders, context) = self.with_context();
        orders.refresh(order, template, context);
        if orders.slots[order].spreads() {
            let users = &mut self.patterns.slots[template].orders;
            if !users.contains(&order) {
                users.push(order);
            }
        }
    }

    fn with_context(&mut self) -> (&mut crate::index::MachineOrders, RankContext<'_>) {
        let (machines, filters, patterns) = (&self.machines, &self.filters, &self.patterns);
        let context = RankContext { machines, filters, patterns, ranking: self.policy.ranking };
        (&mut self.orders, context)
    }
}
