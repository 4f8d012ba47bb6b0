package snsnotify

// Input is input.
var Input = input
