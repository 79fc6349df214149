// Package commands combines the commands of all subjects into the command line of the program.
//
// Only the programs and their tests import it. Start with New.
package commands
