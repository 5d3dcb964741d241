//! The web page in a real headless Chromium: lists, live changes, actions, keys, accessibility,
//! pictures and figures.

mod actions;
mod daemon;
mod figures;
mod large;
mod looks;
mod webdriver;
