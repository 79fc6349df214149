// Package commands joins the commands of all subjects to the command line of the program.
//
// Only the programs and their tests import it. Start with New.
package commands
